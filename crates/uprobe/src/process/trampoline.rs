//! The machine code between a probed function and a program.
//!
//! With one register alone, a thread finds its area, checks that it is its own, takes a frame, moves its stack pointer
//! there, and stores its registers as the kernel's `struct pt_regs`. At a function's entry and at its RETs, the flags
//! are dead, and in Go so is r12: nothing is written to a goroutine's stack, which may have no room left. In C
//! the register is r11, which the ABI lets a function change, but GCC knows better of functions in the same file
//! (-fipa-ra, part of -O2): a caller may keep something in it. So it is pushed first. There is room for that: the
//! kernel puts signal frames there. Vector registers are neither saved nor used: programs must not use them either.
//!
//! Inside of a function nothing is dead, and the 128 bytes below the stack pointer, the red zone, may be in use. So
//! the stack pointer moves below it by LEA, which leaves the flags alone, and r11 and the flags are pushed: those by
//! LAHF and SETO, since POPF is slow. They are the six that arithmetic changes; pt_regs holds them and what user
//! space always has, without the direction flag. At a RET of Go, pt_regs holds no flags, as at entries and returns;
//! inside of Go functions, a probe is only where the stack has room.
//!
//! A signal may come between any two instructions, with a handler that calls a probed function: it takes the next
//! frame, and gives it back before this code goes on. Where there is no frame left, or no area that is certainly the
//! thread's own ([`super::identity`]), the program is not run and the slot's second number counts it.
//!
//! A function that leaves by a jump to another one is probed when that one returns (`trampoline/tail.rs`).
//!
//! Code is never changed once a thread may execute it, except for the program's address and cookie, which are data,
//! and, while all threads are stopped, for the jump back to the function ([`Trampoline::back`]).

mod child;
mod identity;
mod tail;

use super::{
    error::{Error, Result},
    identity::Proof,
    layout::{
        CONTROL_FRAME, CONTROL_LIMIT, FRAME_CHECKED, FRAME_COOKIE, FRAME_FUNCTION, FRAME_STACK,
        LEVEL, Layout, NO_PAGE, SLOT, regs,
    },
    site::{Site, When, is_call},
};
use iced_x86::{
    BlockEncoderOptions, Code, FlowControl, IcedError, Instruction,
    code_asm::{
        AsmMemoryOperand, AsmRegister64, CodeAssembler, CodeLabel, byte_ptr, dword_ptr, qword_ptr,
        registers::*,
    },
};
pub(super) use tail::{Condition, ENTRIES, KEY, STUB, Table};

/// The flags of user space that pt_regs holds: interrupts are on, and one bit is always set.
const RFLAGS: i32 = 0x202;
/// Bytes below the stack pointer in which the ABI lets a function keep data.
const RED_ZONE: i32 = 128;
/// The selectors of 64-bit code and of data.
const CS: i32 = 0x33;
const SS: i32 = 0x2b;
/// The overflow flag's bit in RFLAGS.
const OVERFLOW: i32 = 11;

/// The machine code of one site.
#[derive(Debug, Clone)]
pub(super) struct Trampoline {
    /// Bytes at its address. The first 16 are for the program that it runs, or for the code of a list
    /// of them: its address, then its cookie.
    pub(super) bytes: Vec<u8>,
    /// Target of the jump.
    pub(super) entry: u64,
    /// Addresses of the probe's own code: the rest is the function's, moved.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the walk in the tests"))]
    pub(super) own: std::ops::Range<u64>,
    /// From the address of each replaced instruction to where it was moved.
    pub(super) moved: Vec<(u64, u64)>,
    /// The 5-byte jump back to the function, where there is one.
    pub(super) back: Option<u64>,
}

/// Addresses that a trampoline refers to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    /// The memory of the process.
    pub(super) layout: Layout,
    /// Proof of a thread's identity.
    pub(super) proof: Proof,
    /// Which slot counts its hits.
    pub(super) slot: u64,
    /// The result of `bpf_get_func_ip`.
    pub(super) function: u64,
    pub(super) role: Role,
}

/// Purpose of a trampoline.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// The program runs at the site.
    Probe,
    /// The function that the site jumps to returns through this table.
    Replace(Table),
    /// The program runs when that function returns, as long as the probe is there.
    Returned(Condition),
}

impl Trampoline {
    /// Makes the code of a site, for an address.
    pub(super) fn assemble(address: u64, site: &Site, context: Context) -> Result<Self> {
        let wrong = |error: IcedError| Error::Code {
            what: site.function.clone(),
            reason: error.to_string(),
        };
        let mut assembly = Assembly::new(site, context).map_err(wrong)?;
        assembly.write().map_err(wrong)?;
        assembly.finish(address).map_err(wrong)
    }
}

/// A trampoline while it is written.
struct Assembly<'a> {
    a: CodeAssembler,
    site: &'a Site,
    context: Context,
    /// The register that is dead.
    scratch: AsmRegister64,
    /// The indices of the moved instructions, in the order of the site's.
    moved: Vec<usize>,
    /// The index of the jump back to the function.
    back: Option<usize>,
    program: CodeLabel,
    cookie: CodeLabel,
    call_return: CodeLabel,
    /// The control page of the first area.
    block: CodeLabel,
    probe: CodeLabel,
    /// The thread's own area is behind the GS base from here on.
    verified: CodeLabel,
    ask: CodeLabel,
    claim: CodeLabel,
    missed: CodeLabel,
    past: CodeLabel,
    /// The function's own code goes on here.
    function: CodeLabel,
}

fn gs(offset: u64) -> AsmMemoryOperand {
    qword_ptr(offset).gs()
}

impl<'a> Assembly<'a> {
    fn new(site: &'a Site, context: Context) -> Result<Self, IcedError> {
        let mut a = CodeAssembler::new(64)?;
        let mut label = || a.create_label();
        let (program, cookie) = (label(), label());
        let (call_return, block, probe) = (label(), label(), label());
        let (verified, ask, claim, missed) = (label(), label(), label(), label());
        let (past, function) = (label(), label());
        let scratch = if site.is_go && !site.is_amid() {
            r12
        } else {
            r11
        };
        let moved = Vec::new();
        Ok(Assembly {
            a,
            site,
            context,
            scratch,
            moved,
            back: None,
            program,
            cookie,
            call_return,
            block,
            probe,
            verified,
            ask,
            claim,
            missed,
            past,
            function,
        })
    }

    fn write(&mut self) -> Result<(), IcedError> {
        self.a.set_label(&mut self.program)?;
        self.a.dq(&[0])?;
        self.a.set_label(&mut self.cookie)?;
        self.a.dq(&[0])?;
        // The return address of a moved call.
        self.a.set_label(&mut self.call_return)?;
        self.a.dq(&[self.site.end()])?;
        self.a.set_label(&mut self.block)?;
        self.a.dq(&[self.context.layout.control(0)])?;
        if let Role::Replace(table) = self.context.role {
            return self.write_tail(table);
        }
        let instructions = self.site.instructions.clone();
        let (before, after) = instructions.split_at(self.site.probed);
        self.write_moved(before)?;
        self.write_probe()?;
        self.write_moved(after)?;
        let goes_on = instructions.last().is_none_or(|last| {
            !is_call(last)
                && !matches!(
                    last.flow_control(),
                    FlowControl::Return
                        | FlowControl::UnconditionalBranch
                        | FlowControl::IndirectBranch
                )
        });
        if goes_on {
            self.back = Some(self.a.instructions().len());
            self.a.zero_bytes()?;
            self.a.jmp(self.site.end())?;
        }
        self.a.int3()
    }

    /// The instructions that the jump replaced.
    fn write_moved(&mut self, instructions: &[Instruction]) -> Result<(), IcedError> {
        for instruction in instructions {
            // An instruction that is encoded as several others (LOOP, JRCXZ) has no offset: this has.
            self.moved.push(self.a.instructions().len());
            self.a.zero_bytes()?;
            let mut instruction = *instruction;
            // Its own address would make it the target of branches to the original.
            instruction.set_ip(0);
            if is_call(&instruction) {
                // The caller that is returned to stays the function, as unwinders need it.
                self.a.push(qword_ptr(self.call_return))?;
                match instruction.code() {
                    Code::Call_rel32_64 => {
                        self.a.jmp(instruction.near_branch_target())?;
                        continue;
                    }
                    _ => instruction.set_code(Code::Jmp_rm64),
                }
            }
            self.a.add_instruction(instruction)?;
        }
        Ok(())
    }

    fn write_probe(&mut self) -> Result<(), IcedError> {
        let (s, level) = (self.scratch, LEVEL as i32);
        let (pushed, is_amid) = (self.pushed(), self.site.is_amid());
        let slots = self.context.layout.to_slots() + self.context.slot * SLOT;
        let mut full = self.a.create_label();
        let a = &mut self.a;

        a.set_label(&mut self.probe)?;
        if is_amid {
            a.lea(rsp, qword_ptr(rsp - RED_ZONE))?;
            a.push(s)?;
            a.mov(s, rax)?;
            a.lahf()?;
            a.seto(al)?;
            a.push(rax)?;
            a.mov(rax, s)?;
        } else if pushed > 0 {
            a.push(s)?
        } else {
            a.zero_bytes()?
        }
        if let Role::Returned(condition) = self.context.role {
            self.write_condition(condition)?;
        }
        self.write_check()?;
        let a = &mut self.a;
        a.mov(s, gs(CONTROL_FRAME))?;
        a.cmp(s, gs(CONTROL_LIMIT))?;
        a.je(full)?;
        // From here on the frame is taken: nothing was written to it before.
        a.sub(s, level)?;
        a.mov(gs(CONTROL_FRAME), s)?;
        a.inc(gs(slots))?;

        a.mov(qword_ptr(s + (level + FRAME_STACK)), rsp)?;
        a.mov(qword_ptr(s + (level + FRAME_CHECKED)), NO_PAGE)?;
        let registers = [
            (regs::R15, r15),
            (regs::R14, r14),
            (regs::R13, r13),
            (regs::R12, r12),
            (regs::RBP, rbp),
            (regs::RBX, rbx),
            (regs::R11, r11),
            (regs::R10, r10),
            (regs::R9, r9),
            (regs::R8, r8),
            (regs::RAX, rax),
            (regs::RCX, rcx),
            (regs::RDX, rdx),
            (regs::RSI, rsi),
            (regs::RDI, rdi),
        ];
        for (offset, register) in registers.into_iter().filter(|&(_, register)| register != s) {
            a.mov(qword_ptr(s + (level + offset)), register)?;
        }
        if is_amid {
            a.movzx(eax, byte_ptr(rsp + 1))?;
            a.movzx(ecx, byte_ptr(rsp))?;
            a.shl(ecx, OVERFLOW)?;
            a.lea(eax, dword_ptr(rax + rcx + (RFLAGS & !0xff)))?;
            a.mov(qword_ptr(s + (level + regs::RFLAGS)), rax)?;
            a.mov(rax, qword_ptr(rsp + 8))?;
            a.mov(qword_ptr(s + (level + regs::R11)), rax)?;
        } else if pushed > 0 {
            a.mov(rax, qword_ptr(rsp))?;
            a.mov(qword_ptr(s + (level + regs::R11)), rax)?;
        }
        a.mov(rax, qword_ptr(self.cookie))?;
        a.mov(qword_ptr(s + (level + FRAME_COOKIE)), rax)?;
        a.mov(rax, self.context.function)?;
        a.mov(qword_ptr(s + (level + FRAME_FUNCTION)), rax)?;
        match self.site.when {
            // The probed address is the function's, as said above.
            When::Entry | When::Inside => {
                a.lea(rcx, qword_ptr(rsp + pushed))?;
                a.mov(qword_ptr(s + (level + regs::RSP)), rcx)?;
            }
            // As the kernel has it: the caller's address, and the stack without it.
            When::Return => {
                a.lea(rax, qword_ptr(rsp + (pushed + 8)))?;
                a.mov(qword_ptr(s + (level + regs::RSP)), rax)?;
                a.mov(rax, qword_ptr(rsp + pushed))?;
            }
        }
        a.mov(qword_ptr(s + (level + regs::RIP)), rax)?;
        a.lea(rsp, qword_ptr(s + level))?;
        a.mov(rdi, rsp)?;
        a.call(qword_ptr(self.program))?;

        if is_amid {
            // Other sites leave it as it was when the frame was made.
            a.mov(qword_ptr(rsp + regs::RFLAGS), RFLAGS)?;
        }
        // The program has preserved what a C function preserves, the stack pointer too.
        for (offset, register) in [
            (regs::RAX, rax),
            (regs::RCX, rcx),
            (regs::RDX, rdx),
            (regs::RSI, rsi),
            (regs::RDI, rdi),
            (regs::R8, r8),
            (regs::R9, r9),
            (regs::R10, r10),
            (regs::R11, r11),
        ] {
            if register != s {
                a.mov(register, qword_ptr(rsp + offset))?;
            }
        }
        a.mov(s, rsp)?;
        a.mov(rsp, qword_ptr(s + FRAME_STACK))?;
        a.mov(gs(CONTROL_FRAME), s)?;
        a.jmp(self.past)?;

        a.set_label(&mut full)?;
        a.inc(gs(slots + 8))?;
        a.jmp(self.past)?;

        self.write_ask()?;
        self.write_claim()?;
        let a = &mut self.a;
        a.set_label(&mut self.past)?;
        if is_amid {
            a.mov(s, rax)?;
            a.pop(rax)?;
            // The overflow flag: 1 + 127 is too much for 8 bits.
            a.add(al, 127)?;
            a.sahf()?;
            a.mov(rax, s)?;
            a.pop(s)?;
            a.lea(rsp, qword_ptr(rsp + RED_ZONE))?;
        } else if pushed > 0 {
            a.pop(s)?
        } else {
            a.zero_bytes()?
        }
        a.set_label(&mut self.function)?;
        a.zero_bytes()
    }

    /// Returns how many bytes the thread's own stack pointer is moved.
    fn pushed(&self) -> i32 {
        match (self.site.is_amid(), self.site.is_go) {
            (true, _) => RED_ZONE + 16,
            (false, true) => 0,
            (false, false) => 8,
        }
    }

    fn finish(mut self, address: u64) -> Result<Trampoline, IcedError> {
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let code = self.a.assemble_options(address, options)?;
        let offsets = &code.inner.new_instruction_offsets;
        let (probe, past) = (code.label_ip(&self.probe)?, code.label_ip(&self.function)?);
        let mut moved: Vec<(u64, u64)> = self
            .site
            .instructions
            .iter()
            .zip(&self.moved)
            .map(|(instruction, &index)| (instruction.ip(), address + u64::from(offsets[index])))
            .collect();
        // Who is about to execute the probed instruction has the probe before it. It is never in the middle of the
        // jump where it is the first.
        if self.site.probed > 0 {
            moved[self.site.probed].1 = probe;
        }
        let entry = if self.site.probed > 0 {
            moved[0].1
        } else {
            probe
        };
        let back = self.back.map(|index| offsets[index] as usize);
        debug_assert!(back.is_none_or(|at| code.inner.code_buffer[at] == 0xe9));
        Ok(Trampoline {
            bytes: code.inner.code_buffer,
            entry,
            own: probe..past,
            moved,
            back: back.map(|offset| address + offset as u64),
        })
    }
}

#[cfg(test)]
mod tests;
