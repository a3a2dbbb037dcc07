//! Instructions with the functions that they make, and how one program takes the place of a function of another.

use libbpf_rs::libbpf_sys::{self as sys, bpf_func_info, bpf_insn};

use super::spliced::Types;

const CALL: u8 = (sys::BPF_JMP | sys::BPF_CALL) as u8;
/// The first half of an instruction that loads 64 bits.
const LOAD_64: u8 = (sys::BPF_LD | sys::BPF_DW | sys::BPF_IMM) as u8;
/// A 64-bit register set to a constant.
const SET: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;
pub(super) const EXIT: u8 = (sys::BPF_JMP | sys::BPF_EXIT) as u8;

/// A program as the kernel loads it: its own function first, then those that it calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) instructions: Vec<bpf_insn>,
    /// First instruction and type of each function; empty without BTF.
    pub(super) functions: Vec<bpf_func_info>,
}

/// The number of the helper that an instruction calls.
pub(super) fn helper(instruction: &bpf_insn) -> Option<u32> {
    (instruction.code == CALL && instruction.src_reg() == 0)
        .then_some(instruction.imm.cast_unsigned())
}

/// Returns true if an instruction calls a function of the kernel that has no number (kfunc).
pub(super) fn is_kernel_function(instruction: &bpf_insn) -> bool {
    instruction.code == CALL && u32::from(instruction.src_reg()) == sys::BPF_PSEUDO_KFUNC_CALL
}

/// Returns true if an instruction names another function of its program, by its distance.
fn names_function(instruction: &bpf_insn) -> bool {
    let source = u32::from(instruction.src_reg());
    (instruction.code == CALL && source == sys::BPF_PSEUDO_CALL)
        || (instruction.code == LOAD_64 && source == sys::BPF_PSEUDO_FUNC)
}

impl Code {
    /// A program that does nothing but return a code.
    pub(super) fn returning(code: u32) -> Self {
        let mut set = bpf_insn {
            code: SET,
            imm: code.cast_signed(),
            ..bpf_insn::default()
        };
        set.set_dst_reg(0);
        let exit = bpf_insn {
            code: EXIT,
            ..bpf_insn::default()
        };
        Code {
            instructions: vec![set, exit],
            functions: Vec::new(),
        }
    }

    /// First instructions of the functions, also those that no type tells: the targets of calls.
    fn starts(&self) -> Vec<usize> {
        let target = |(at, one): (usize, &bpf_insn)| names_function(one).then(|| target(at, one));
        let mut starts: Vec<usize> = self
            .instructions
            .iter()
            .enumerate()
            .filter_map(target)
            .collect();
        starts.push(0);
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    /// This driver with `program` in place of its target, whose signature the program gets. `shift` is what is added to
    /// the type numbers of the driver; `program` has those that it is loaded with. `None` if the driver has no target.
    pub(super) fn with(&self, program: &Code, types: Types, shift: u32) -> Option<Code> {
        let is_target = |one: &bpf_func_info| one.type_id == types.target;
        let stub_at = self.functions.iter().position(is_target)?;
        let start = self.functions[stub_at].insn_off as usize;
        let end = match self.functions.get(stub_at + 1) {
            Some(next) => next.insn_off as usize,
            None => self.instructions.len(),
        };
        let removed = end - start;
        let new_start = self.instructions.len() - removed;
        // Where an instruction of the driver is once the stub is gone; the stub itself is last.
        let moved = |at: usize| match at {
            at if at == start => new_start,
            at if at >= end => at - removed,
            at => at,
        };
        let mut instructions = Vec::new();
        for (at, one) in self.instructions.iter().enumerate() {
            if (start..end).contains(&at) {
                continue;
            }
            let mut one = *one;
            if names_function(&one) {
                let distance = moved(target(at, &one)) as i64 - moved(at) as i64 - 1;
                one.imm = i32::try_from(distance).ok()?;
            }
            instructions.push(one);
        }
        instructions.extend_from_slice(&program.instructions);
        let of_driver = |one: &bpf_func_info| bpf_func_info {
            insn_off: moved(one.insn_off as usize) as u32,
            type_id: one.type_id + shift,
        };
        let mut functions: Vec<bpf_func_info> = self.functions.iter().map(of_driver).collect();
        functions.sort_unstable_by_key(|one| one.insn_off);
        let typed = |start: &usize| {
            program
                .functions
                .iter()
                .find(|one| one.insn_off as usize == *start)
        };
        // The first is the program itself, which has the stub's type.
        for start in program.starts().iter().skip(1) {
            functions.push(bpf_func_info {
                insn_off: (new_start + start) as u32,
                type_id: typed(start).map_or(types.part + shift, |one| one.type_id),
            });
        }
        Some(Code {
            instructions,
            functions,
        })
    }
}

/// Start of the function that an instruction names.
fn target(at: usize, instruction: &bpf_insn) -> usize {
    (at as i64 + 1 + i64::from(instruction.imm)).max(0) as usize
}
