//! The two ways into a loop, and which of them a program takes: the same on every kernel, so that it is known before one
//! is asked.

use libbpf_rs::libbpf_sys::{self as sys, bpf_insn};

use super::{code, kind::ProgramKind};

/// The stack that a program and a function that it calls may have, for its driver to have enough: of 512 bytes, which
/// are counted in steps.
const MAX_STACK: u32 = 440;
/// The register with the end of the stack.
const FRAME: u8 = 10;
const REGISTERS: usize = 11;

/// Ways to run a program in a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoopForm {
    /// The program's instructions are part of a driver.
    #[default]
    Spliced,
    /// A driver makes tail calls to it: so few in each of its runs that these are windows, whose times are added up.
    Windows,
}

impl LoopForm {
    /// That of a program with these instructions, and of functions with `others`, which it may call.
    pub(super) fn new(kind: ProgramKind, own: &[bpf_insn], others: &[bpf_insn]) -> Self {
        // Those sleep, and the kernel lets no such program make tail calls.
        if kind == ProgramKind::Syscall {
            return LoopForm::Spliced;
        }
        let mut all = own.iter().chain(others);
        let calls_tail = all.any(|one| code::helper(one) == Some(sys::BPF_FUNC_tail_call));
        if calls_tail || stack_bytes(own) + stack_bytes(others) > MAX_STACK {
            LoopForm::Windows
        } else {
            LoopForm::Spliced
        }
    }
}

/// The most bytes of stack that a function among these instructions uses: where it writes or reads, or takes the address.
fn stack_bytes(instructions: &[bpf_insn]) -> u32 {
    let mut most = 0;
    // Registers with the end of the stack, to which a compiler adds a distance next.
    let mut copies = [false; REGISTERS];
    for one in instructions {
        let class = u32::from(one.code) & 0x07;
        let (target, source) = (usize::from(one.dst_reg()), one.src_reg());
        let base = match class {
            sys::BPF_LDX => Some(source),
            sys::BPF_ST | sys::BPF_STX => Some(one.dst_reg()),
            _ => None,
        };
        if base == Some(FRAME) {
            most = most.max(-i32::from(one.off));
        }
        let Some(copy) = copies.get_mut(target) else {
            continue;
        };
        if class == sys::BPF_ALU64 {
            let operation = u32::from(one.code) & 0xf8;
            if operation == sys::BPF_ADD | sys::BPF_K && *copy {
                most = most.max(one.imm.saturating_neg());
            }
            *copy = operation == sys::BPF_MOV | sys::BPF_X && source == FRAME;
        } else if class == sys::BPF_LDX || class == sys::BPF_ALU || class == sys::BPF_LD {
            *copy = false;
        }
    }
    most.max(0).cast_unsigned()
}

/// Instructions of the bytes of a section.
pub(super) fn instructions(section: &[u8]) -> Vec<bpf_insn> {
    let (all, _) = section.as_chunks::<8>();
    let instruction = |bytes: &[u8; 8]| {
        let [code, registers, low, high, imm @ ..] = *bytes;
        let mut one = bpf_insn {
            code,
            off: i16::from_le_bytes([low, high]),
            imm: i32::from_le_bytes(imm),
            ..bpf_insn::default()
        };
        one.set_dst_reg(registers & 0x0f);
        one.set_src_reg(registers >> 4);
        one
    };
    all.iter().map(instruction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(all: &[[u8; 8]]) -> Vec<bpf_insn> {
        instructions(&all.concat())
    }

    /// `*(u64 *)(r10 - 16) = r1`
    const STORE_16: [u8; 8] = [0x7b, 0x1a, 0xf0, 0xff, 0, 0, 0, 0];
    /// `r2 = r10`
    const COPY: [u8; 8] = [0xbf, 0xa2, 0, 0, 0, 0, 0, 0];
    /// `r2 += -400`
    const ADD_400: [u8; 8] = [0x07, 0x02, 0, 0, 0x70, 0xfe, 0xff, 0xff];
    /// `r2 = *(u64 *)(r1 + 0)`
    const LOAD: [u8; 8] = [0x79, 0x12, 0, 0, 0, 0, 0, 0];
    /// `call bpf_tail_call`
    const TAIL_CALL: [u8; 8] = [0x85, 0, 0, 0, 12, 0, 0, 0];

    #[test]
    fn the_stack_is_as_deep_as_it_is_used() {
        assert_eq!(stack_bytes(&decoded(&[STORE_16])), 16);
        assert_eq!(stack_bytes(&decoded(&[STORE_16, COPY, ADD_400])), 400);
        assert_eq!(stack_bytes(&decoded(&[COPY, LOAD, ADD_400])), 0);
        assert_eq!(stack_bytes(&decoded(&[ADD_400, LOAD])), 0);
    }

    #[test]
    fn tail_calls_and_deep_stacks_are_run_in_windows() {
        let form = |own: &[[u8; 8]], others: &[[u8; 8]]| {
            LoopForm::new(ProgramKind::Xdp, &decoded(own), &decoded(others))
        };
        let deep = [COPY, ADD_400];
        assert_eq!(form(&[STORE_16], &deep), LoopForm::Spliced);
        assert_eq!(form(&deep, &deep), LoopForm::Windows);
        assert_eq!(form(&[LOAD], &[TAIL_CALL]), LoopForm::Windows);
        assert_eq!(form(&[TAIL_CALL], &[]), LoopForm::Windows);
        let sleeps = LoopForm::new(ProgramKind::Syscall, &decoded(&deep), &decoded(&deep));
        assert_eq!(sleeps, LoopForm::Spliced);
    }
}
