//! Every operation on constants gives what the machine code gives that is written for it, and every branch goes where that
//! goes. The tests of single instructions compare the machine code with the kernel.

use bpfcost_uprobe::translate::{
    Backend as _, Error, HelperTable, Instruction, MapLayout, MapPlace, Program, Translator,
};

use super::{is_known, ways};
use crate::{assemble::*, machine::Machine};

const VALUES: [u64; 9] = [
    0,
    1,
    33,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x0123_4567_89ab_cdef,
    1 << 63,
    u64::MAX,
];

struct Nothing;

impl MapLayout for Nothing {
    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        panic!("there is no map {fd}");
    }
}

/// Results of a program on all pairs of numbers, which it finds in R1 and R2, by machine code that knows none of them.
fn by_machine(body: &[Instruction]) -> Vec<(u64, u64, u64)> {
    let mut instructions = vec![load(DOUBLE, 2, 1, 8), load(DOUBLE, 1, 1, 0)];
    instructions.extend(body);
    let program = Program {
        instructions: &instructions,
        fd: -1,
    };
    let mut machine = Machine::new().expect("memory can be had");
    let code = Translator::of_this_machine().translate(
        &program,
        machine.address(),
        &HelperTable::new(),
        &Nothing,
    );
    machine.put(&code.expect("all of it is supported").bytes);
    let mut results = Vec::new();
    for left in VALUES {
        for right in VALUES {
            let mut context = [left.to_le_bytes(), right.to_le_bytes()].concat();
            let result = machine.run(&mut context, false).result;
            results.push((left, right, result));
        }
    }
    results
}

#[track_caller]
fn agree(operation: Instruction) {
    for (left, right, result) in by_machine(&[operation, mov(0, 1), exit()]) {
        let before = [&wide(1, left)[..], &wide(2, right), &[operation]].concat();
        assert!(
            is_known(&before, result),
            "{operation:?} of {left:#x} and {right:#x} is {result:#x}"
        );
    }
}

const OPERATIONS: [u8; 12] = [
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0,
];

#[test]
fn operations_on_constants_give_the_same() {
    for class in [ALU, ALU64] {
        for operation in OPERATIONS {
            let is_division = matches!(operation, 0x30 | 0x90);
            let is_shift = matches!(operation, 0x60 | 0x70 | 0xc0);
            for sign in 0..=i16::from(is_division) {
                agree(op(class, operation, 1, 2, sign));
                for immediate in [7, 0x7fff_ffff, -1] {
                    let immediate = if is_shift { immediate & 31 } else { immediate };
                    agree(op_imm(class, operation, 1, sign, immediate));
                }
            }
        }
        agree(op_imm(class, 0x80, 1, 0, 0));
        for bits in [8, 16] {
            agree(op(class, 0xb0, 1, 2, bits));
        }
    }
    agree(op(ALU64, 0xb0, 1, 2, 32));
    for code in [0xd7, 0xd4, 0xdc] {
        for bits in [16, 32, 64] {
            agree(raw(code, 1, 0, 0, bits));
        }
    }
}

#[test]
fn branches_by_constants_go_the_same_way() {
    for class in [JMP, JMP32] {
        for operation in [
            0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0,
        ] {
            let by_register = jump(class, operation, 1, 2, 1);
            let by_numbers =
                [0, 0x7fff_ffff, -1].map(|immediate| jump_imm(class, operation, 1, immediate, 1));
            for branch in [by_register].into_iter().chain(by_numbers) {
                let body = [mov_imm(0, 1), branch, mov_imm(0, 0), exit()];
                for (left, right, is_taken) in by_machine(&body) {
                    let before = [wide(1, left), wide(2, right)].concat();
                    assert_eq!(
                        ways(&before, branch),
                        (is_taken == 0, is_taken == 1),
                        "{branch:?} of {left:#x} and {right:#x}"
                    );
                }
            }
        }
    }
}
