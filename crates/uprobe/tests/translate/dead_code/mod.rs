//! Code that is never executed: small programs, and which of their instructions are left.

mod evaluation;
mod knowledge;
mod paths;

use bpfcost_uprobe::translate::{Instruction, without_dead_code};

use crate::assemble::*;

/// The file descriptor of the map with the constants, and that of one which is not frozen.
const FROZEN: i32 = 7;
const OTHER: i32 = 8;

/// The constants: a number of each width, negative ones too.
const CONSTANTS: [u8; 24] = [
    1, 0, 0, 0, // 1
    0xfe, 0xff, 0xff, 0xff, // -2
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, // 0xffff_ffff
    5, 0, 0, 0, 1, 0, 0, 0x80, // 0x8000_0001_0000_0005
];

/// A call that must not be left where it is dead: no helper has this id.
const UNKNOWN_HELPER: i32 = 9999;

fn constants(fd: i32) -> Option<Vec<u8>> {
    (fd == FROZEN).then(|| CONSTANTS.to_vec())
}

fn reduced(program: &[Instruction]) -> Vec<Instruction> {
    without_dead_code(program, &constants)
}

/// The instructions that are left, by their numbers.
fn left(program: &[Instruction]) -> Vec<usize> {
    let reduced = reduced(program);
    assert_eq!(reduced.len(), program.len());
    let all = 0..program.len();
    all.filter(|index| reduced[*index] != always(0)).collect()
}

/// The ways that are left behind `before`: past a jump, and where it leads.
fn ways(before: &[Instruction], jump: Instruction) -> (bool, bool) {
    let mut program = before.to_vec();
    program.push(Instruction { offset: 2, ..jump });
    program.extend([mov_imm(0, 0), exit(), call(UNKNOWN_HELPER), exit()]);
    let left = left(&program);
    let is_left = |behind: usize| left.contains(&(before.len() + behind));
    (is_left(2), is_left(3))
}

/// Returns whether R1 is known to be a number behind these.
fn is_known(before: &[Instruction], number: u64) -> bool {
    let mut program = before.to_vec();
    program.extend(wide(9, number));
    ways(&program, jump(JMP, 0x50, 1, 9, 0)) == (true, false)
}

/// The same of a number that `before` leaves in the register.
fn is_known_in(register: u8, before: &[Instruction], number: u64) -> bool {
    let mut program = before.to_vec();
    program.push(mov(1, register));
    is_known(&program, number)
}

/// Puts a constant into a register.
fn constant(width: u8, dst: u8, offset: i16) -> [Instruction; 3] {
    let [low, high] = map_value(dst, FROZEN, 0);
    [low, high, load(width, dst, dst, offset)]
}

fn join(parts: &[&[Instruction]]) -> Vec<Instruction> {
    parts.concat()
}
