//! Contents of registers and of the stack that are known, and those that are not.

use bpfcost_uprobe::translate::Instruction;

use super::{FROZEN, OTHER, constant, is_known, is_known_in, join, reduced, ways};
use crate::assemble::*;

#[test]
fn loads_of_constants_are_moves() {
    let cases = [
        (constant(BYTE, 1, 0), mov_imm(1, 1)),
        (constant(HALF, 1, 4), mov_imm(1, 0xfffe)),
        (constant(WORD, 1, 16), mov_imm(1, 5)),
        (constant(DOUBLE, 1, 8), op_imm(ALU, 0xb0, 1, 0, -1)),
        (constant(WORD, 1, 8), op_imm(ALU, 0xb0, 1, 0, -1)),
    ];
    for (program, expected) in cases {
        let program = join(&[&program, &[exit()]]);
        assert_eq!(reduced(&program)[2], expected);
    }
    let [low, high] = map_value(2, FROZEN, 4);
    for (width, number) in [(BYTE, -2), (HALF, -2), (WORD, -2)] {
        let program = [low, high, load_signed(width, 1, 2, 0), exit()];
        assert_eq!(reduced(&program)[2], mov_imm(1, number), "{width:#x}");
    }
    // A move has 32 bits.
    let program = join(&[&constant(DOUBLE, 1, 16), &[exit()]]);
    assert_eq!(reduced(&program), program);
    assert!(is_known(&constant(DOUBLE, 1, 16), 0x8000_0001_0000_0005));
}

#[test]
fn constants_are_found_by_any_distance() {
    let [low, high] = map_value(2, FROZEN, 8);
    let five = load(WORD, 1, 3, 0);
    for way in [
        vec![mov(3, 2), op_imm(ALU64, 0x00, 3, 0, 8)],
        vec![mov(3, 2), op_imm(ALU64, 0x10, 3, 0, -8)],
        vec![mov(3, 2), mov_imm(4, 8), op(ALU64, 0x00, 3, 4, 0)],
    ] {
        let before = join(&[&[low, high], &way, &[five]]);
        assert!(is_known(&before, 5), "{way:?}");
    }
    // Not those beyond their end, before their beginning, or half of both; nor by what is no address any more.
    for offset in [-9, 13, 16, 100, i16::MIN, i16::MAX] {
        let before = [low, high, load(WORD, 1, 2, offset)];
        assert_eq!(reduced(&join(&[&before, &[exit()]]))[2], before[2]);
    }
    for spoilt in [
        op(ALU, 0xb0, 2, 2, 0),
        op_imm(ALU64, 0x50, 2, 0, -1),
        op_imm(ALU, 0x00, 2, 0, 0),
        op(ALU64, 0x00, 2, 5, 0),
        raw(0xbf, 2, 2, 1, 1),
        op_imm(ALU64, 0x80, 2, 0, 0),
    ] {
        let before = [low, high, spoilt, load(WORD, 1, 2, 8)];
        assert!(!is_known(&before, 5), "{spoilt:?}");
    }
}

#[test]
fn other_memory_is_not_known() {
    let [low, high] = map_value(1, OTHER, 0);
    assert!(!is_known(&[low, high, load(WORD, 1, 1, 0)], 1));
    let [low, high] = map(1, FROZEN);
    assert!(!is_known(&[low, high, load(WORD, 1, 1, 0)], 1));
    assert!(!is_known(&[load(WORD, 1, 1, 0)], 0));
    // Atomic loads are not looked at.
    let [low, high] = map_value(2, FROZEN, 0);
    assert!(!is_known(&[low, high, load_acquire(WORD, 1, 2, 0)], 1));
    assert!(!is_known(&[mov_imm(1, 3), load_acquire(WORD, 1, 2, 0)], 3));
}

/// One of two numbers, by a branch that nothing decides.
fn one_of(left: i32, right: i32) -> [Instruction; 4] {
    [
        mov_imm(1, left),
        jump_imm(JMP, 0x10, 2, 0, 1),
        mov_imm(1, right),
        mov_imm(3, 0),
    ]
}

#[test]
fn two_paths_agree_on_a_number_or_it_is_unknown() {
    assert!(is_known(&one_of(4, 4), 4));
    for number in [4, 5] {
        assert!(!is_known(&one_of(4, 5), number));
    }
    // An address on one path, and another one, or a number, on the other.
    let [low, high] = map_value(1, FROZEN, 0);
    let load = load(WORD, 1, 1, 0);
    let branch = jump_imm(JMP, 0x10, 2, 0, 1);
    assert!(is_known(&[low, high, branch, mov_imm(3, 0), load], 1));
    let moved = op_imm(ALU64, 0x00, 1, 0, 16);
    for number in [1, 5] {
        assert!(!is_known(&[low, high, branch, moved, load], number));
        assert!(!is_known(&[low, high, branch, mov_imm(1, 0), load], number));
    }
    // The stack: the same byte, another, and none.
    let spilt = [mov_imm(1, 4), store(DOUBLE, 10, -8, 1), branch];
    let read = crate::assemble::load(DOUBLE, 1, 10, -8);
    for (other, known) in [
        (store_imm(DOUBLE, 10, -8, 4), true),
        (store_imm(DOUBLE, 10, -8, 5), false),
        (store_imm(BYTE, 10, -1, 9), false),
        (store(DOUBLE, 10, -8, 2), false),
    ] {
        let before = join(&[&spilt, &[other, read]]);
        assert_eq!(is_known(&before, 4), known, "{other:?}");
        assert!(!is_known(&before, 5), "{other:?}");
    }
}

#[test]
fn constants_go_through_the_stack() {
    let spill = join(&[&constant(WORD, 1, 16), &[store(DOUBLE, 10, -16, 1)]]);
    let five = |width, offset| join(&[&spill, &[load(width, 1, 10, offset)]]);
    assert!(is_known(&five(DOUBLE, -16), 5));
    assert!(is_known(&five(BYTE, -16), 5));
    assert!(is_known(&five(WORD, -12), 0));
    assert!(!is_known(&five(WORD, -10), 0));
    let signed = [store_imm(WORD, 10, -4, -2), load_signed(HALF, 1, 10, -4)];
    assert!(is_known(&signed, -2_i64 as u64));
    let parts = [
        store_imm(WORD, 10, -4, 1),
        store_imm(WORD, 10, -8, -1),
        load(DOUBLE, 1, 10, -8),
    ];
    assert!(is_known(&parts, 0x1_ffff_ffff));
    // Until something may write it: parts of it, or through a pointer that may lead there.
    for (write, known) in [
        (store(BYTE, 10, -9, 2), false),
        (store(BYTE, 10, -8, 2), true),
        (store(BYTE, 10, -17, 2), true),
        (store(BYTE, 3, 0, 2), false),
        (store_imm(BYTE, 3, 0, 2), false),
        (atomic(WORD, 0, 10, -12, 2), false),
        (atomic(WORD, 0, 10, -8, 2), true),
        (atomic(DOUBLE, 0, 3, 0, 2), false),
        (atomic(DOUBLE, STORE_RELEASE, 3, 0, 2), false),
        (load_acquire(DOUBLE, 3, 10, -16), true),
        (call(1), false),
        (raw(0x85, 0, 2, 0, 77), false),
    ] {
        let before = join(&[&spill, &[write, load(DOUBLE, 1, 10, -16)]]);
        assert_eq!(is_known(&before, 5), known, "{write:?}");
    }
}

#[test]
fn calls_leave_six_to_nine() {
    for called in [call(1), raw(0x85, 0, 2, 0, 77), raw(0x20, 0, 0, 0, 0)] {
        for register in 0..=9 {
            let before = [mov_imm(register, 4), called];
            let known = is_known_in(register, &before, 4);
            assert_eq!(known, register >= 6, "R{register} behind {called:?}");
        }
    }
}

#[test]
fn atomic_operations_change_what_they_return() {
    let numbers = [mov_imm(0, 4), mov_imm(1, 4), mov_imm(2, 4)];
    let known = |operation: i32| {
        let before = join(&[&numbers, &[atomic(DOUBLE, operation, 3, 0, 2)]]);
        [0, 1, 2].map(|register| is_known_in(register, &before, 4))
    };
    assert_eq!(known(0x40), [true, true, true]);
    assert_eq!(known(0x40 | FETCH), [true, true, false]);
    assert_eq!(known(XCHG), [true, true, false]);
    assert_eq!(known(CMPXCHG), [false, true, true]);
    assert_eq!(known(STORE_RELEASE), [true, true, true]);
}

#[test]
fn comparisons_of_32_bits_see_the_lower_half() {
    let before = wide(1, 0x7_0000_0005);
    let equal = jump_imm(JMP32, 0x10, 1, 5, 0);
    assert_eq!(ways(&before, equal), (false, true));
    let equal = jump_imm(JMP, 0x10, 1, 5, 0);
    assert_eq!(ways(&before, equal), (true, false));
    let negative = wide(1, 0x7_8000_0000);
    let below = jump_imm(JMP32, 0xc0, 1, 0, 0);
    assert_eq!(ways(&negative, below), (false, true));
    // Arithmetic of 32 bits clears the upper half.
    assert!(is_known(&join(&[&before, &[op(ALU, 0xb0, 1, 1, 0)]]), 5));
}

/// Other kinds of 64-bit loads: their numbers are not the program's.
#[test]
fn addresses_are_not_known() {
    for kind in [1, 2, 3, 5, 6] {
        let before = [raw(0x18, 1, kind, 0, OTHER), raw(0, 0, 0, 0, 0)];
        assert!(!is_known(&before, OTHER as u64), "{kind}");
    }
}
