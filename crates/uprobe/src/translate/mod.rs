//! BPF instructions as machine code of x86-64.
//!
//! A [`Backend`] turns a program that the kernel's verifier has accepted into code for a given address of a user-space
//! process. [`Translator`] is the one to run, [`KernelImage`] a second opinion. Helpers are called at the addresses of a
//! [`HelperTable`]; a [`MapLayout`] says where the maps are.
//!
//! The code is a System V function of one argument, the context, with the result in RAX. It touches no vector
//! register, and writes nothing but BPF memory and [`MachineCode::stack_bytes`] below the stack pointer it is called
//! with (helpers add theirs).
//!
//! # Where it differs from the kernel
//!
//! - `may_goto` ends a loop after 8,388,608 rounds in one call of a function; newer kernels look at the clock instead.
//! - A 32-bit compare-and-exchange always clears the upper half of R0, as BPF wants it; the kernel of 6.18 leaves it in
//!   some programs with branches (`tests/translate/generator/mod.rs`).
//! - Reads through a bad pointer, which only programs with kernel pointers make, are not caught.
//! - A store to a page of an arena that nobody has asked for makes the page; the kernel drops it.
//!
//! # Code that is not translated
//!
//! Code that no path leads to is never looked at ([`without_dead_code`]): branches by the constants of frozen maps are
//! decided first. Elsewhere, kernel functions, kernel variables, packet loads, and helpers and maps without a form in user
//! space are errors.

mod alu;
mod arena;
mod assembler;
mod control;
mod dead_code;
mod error;
mod function;
mod helper_name;
mod helper_table;
pub mod helpers;
mod instruction;
mod jumps;
mod kernel_image;
mod labels;
mod map_use;
mod maps;
mod memory;
mod pointer_state;
mod pointers;
mod tail_call;
mod translator;

pub use dead_code::without_dead_code;
pub use error::{Error, Result};
use helper_name::helper_id;
pub use helper_table::HelperTable;
pub use instruction::Instruction;
pub use kernel_image::KernelImage;
pub use maps::{ArenaPlace, ArrayPlace, MapLayout, MapPlace};
pub use tail_call::{MAX_TAIL_CALLS, most_stack};
pub use translator::Translator;

/// A way to get machine code of a program.
pub trait Backend {
    /// Returns what to call it in reports.
    fn name(&self) -> &'static str;

    /// Machine code of a program for the address `at`.
    fn translate(
        &self,
        program: &Program<'_>,
        at: u64,
        helpers: &HelperTable,
        maps: &dyn MapLayout,
    ) -> Result<MachineCode>;
}

/// A program that the verifier has accepted.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The instructions as they were loaded: CO-RE relocations made, maps by file descriptor, subprograms behind the
    /// main program.
    pub instructions: &'a [Instruction],
    /// The loaded program's file descriptor.
    pub fd: i32,
}

/// Machine code of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCode {
    /// The bytes. The main program is at the beginning.
    pub bytes: Vec<u8>,
    /// The functions, in the order of their instructions; the main program is the first.
    pub functions: Vec<FunctionOffset>,
    /// The most bytes of stack that it takes, return addresses included, helpers not.
    pub stack_bytes: u32,
    /// Offset at which a tail call enters it: behind the code that begins the count of tail calls.
    pub tail_entry: u32,
    /// If it makes tail calls, the most bytes of its stack that stay in use below the program that it calls.
    pub tail_stack_bytes: Option<u32>,
}

/// Beginning of a function's machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionOffset {
    /// The first BPF instruction.
    pub instruction: usize,
    /// Offset of its code, in bytes.
    pub offset: u32,
}

/// Context of a program, as the trampoline fills it: the registers as the kernel lays them out, and
/// what the helpers about the probe return.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeContext {
    /// `struct pt_regs`.
    pub registers: [u64; 21],
    /// The result of `bpf_get_func_ip`: the address of the probed instruction.
    pub function: u64,
    /// The result of `bpf_get_attach_cookie`.
    pub cookie: u64,
}

impl ProbeContext {
    const FUNCTION_OFFSET: u32 = std::mem::offset_of!(ProbeContext, function) as u32;
    const COOKIE_OFFSET: u32 = std::mem::offset_of!(ProbeContext, cookie) as u32;
    /// Offset in the context of the count of a run's tail calls: 4 bytes, which no program can reach.
    /// They need no value before a run.
    pub const TAIL_CALLS_OFFSET: u32 = 200;
}

/// Returns whether an instruction copies a whole register.
fn alu_is_move(instruction: Instruction) -> bool {
    let is_move = instruction.operation() == instruction::alu::MOV;
    is_move
        && instruction.class() == instruction::class::ALU64
        && instruction.offset == 0
        && instruction.has_register_operand()
}
