//! Code that no path leads to, as the verifier sees it: it reads the constants of maps that nothing can change, and takes
//! only one way at branches that they decide. Tools keep their options there (`const volatile`, `.rodata`).
//!
//! This is a forward analysis over the functions of a program. At each instruction that jumps lead to, a register or a byte
//! of the stack is one number for all paths, or unknown. Calls and stores by other pointers than the frame pointer leave
//! nothing known of the stack. The verifier follows each path by itself, and so may know more.

mod effect;
mod evaluation;
mod state;

use self::state::State;
use super::{
    function::{self, callee, each},
    instruction::{Instruction, alu, class, jump, pseudo},
    map_use::jump_targets,
};
use std::collections::{BTreeMap, BTreeSet};

/// A jump to the next instruction, for which there is no machine code.
const NOTHING: Instruction = Instruction {
    code: class::JMP | jump::JA,
    dst: 0,
    src: 0,
    offset: 0,
    immediate: 0,
};

/// Replaces the code of a program that is never executed: by jumps to the next instruction, so that all others stay where
/// they are. Branches that constants decide become jumps, and loads of constants become moves.
///
/// `constants` returns the bytes of a map, by its file descriptor, if the map is frozen and programs can't write it either
/// ([`super::MapLayout::constants`]).
pub fn without_dead_code(
    program: &[Instruction],
    constants: &dyn Fn(i32) -> Option<Vec<u8>>,
) -> Vec<Instruction> {
    // A malformed program stays as it is: the translator says what is wrong. So does one with jumps to any address.
    let replaced = Analysis::run(program, constants).and_then(|analysis| analysis.replaced());
    replaced.unwrap_or_else(|| program.to_vec())
}

struct Analysis<'a> {
    program: &'a [Instruction],
    /// The constants by the file descriptors of their maps.
    constants: BTreeMap<i32, Vec<u8>>,
    /// The instructions that jumps and calls lead to.
    is_leader: Vec<bool>,
    /// The knowledge at each of them; nothing where no path leads to it so far.
    states: BTreeMap<usize, State>,
    /// Those whose knowledge changed since their code was looked at.
    changed: BTreeSet<usize>,
}

impl<'a> Analysis<'a> {
    fn run(program: &'a [Instruction], constants: &dyn Fn(i32) -> Option<Vec<u8>>) -> Option<Self> {
        let is_indirect = |one: &Instruction| {
            one.is_jump_class() && one.operation() == jump::JA && one.has_register_operand()
        };
        if program.iter().any(is_indirect) {
            return None;
        }
        let values = each(program).filter(|(_, one)| one.is_wide() && one.src == pseudo::MAP_VALUE);
        let fds: BTreeSet<i32> = values.map(|(_, one)| one.immediate).collect();
        let mut analysis = Analysis {
            program,
            constants: fds
                .into_iter()
                .filter_map(|fd| Some((fd, constants(fd)?)))
                .collect(),
            is_leader: jump_targets(program),
            states: BTreeMap::new(),
            changed: BTreeSet::new(),
        };
        analysis.reach(0, &State::default());
        while let Some(leader) = analysis.changed.pop_first() {
            for (next, state) in analysis.follow(leader, |_, _| {})? {
                analysis.reach(next, &state);
            }
        }
        Some(analysis)
    }

    fn reach(&mut self, leader: usize, state: &State) {
        let changed = match self.states.get_mut(&leader) {
            Some(known) => known.join(state),
            None => {
                self.states.insert(leader, state.clone());
                true
            }
        };
        if changed {
            self.changed.insert(leader);
        }
    }

    /// Follows the code from a leader to the next one, or to where it ends. Returns where it leads to, and what is known
    /// there; `None` if that is out of the program.
    fn follow(
        &self,
        leader: usize,
        mut see: impl FnMut(usize, &State),
    ) -> Option<Vec<(usize, State)>> {
        let mut state = self.states.get(&leader)?.clone();
        let mut leads_to = Vec::new();
        let mut index = leader;
        loop {
            let instruction = *self.program.get(index)?;
            let target = |distance: i64| function::target(self.program, index, distance).ok();
            see(index, &state);
            if instruction.is_exit() {
                return Some(leads_to);
            }
            if let Some(distance) = instruction.jump_distance() {
                let taken = is_taken(instruction, &state);
                if taken != Some(false) {
                    leads_to.push((target(distance)?, state.clone()));
                }
                if taken == Some(true) {
                    return Some(leads_to);
                }
            } else {
                if let Some(distance) = callee(instruction) {
                    // A callback's arguments are the caller's of the function that it was passed to.
                    let entry = match instruction.is_call() {
                        true => state.called(),
                        false => State::default(),
                    };
                    leads_to.push((target(distance.into())?, entry));
                }
                self.step(index, instruction, &mut state);
            }
            index += if instruction.is_wide() { 2 } else { 1 };
            if *self.is_leader.get(index)? {
                leads_to.push((index, state));
                return Some(leads_to);
            }
        }
    }

    fn replaced(&self) -> Option<Vec<Instruction>> {
        let mut replaced = vec![NOTHING; self.program.len()];
        for leader in self.states.keys() {
            self.follow(*leader, |index, state| {
                let instruction = self.program[index];
                replaced[index] = self.replacement(instruction, state);
                if let (true, Some(second)) = (instruction.is_wide(), replaced.get_mut(index + 1)) {
                    *second = self.program[index + 1];
                }
            })?;
        }
        // Jumps over nothing, from the end on: over other ones, too.
        for index in (0..replaced.len()).rev() {
            let jump = replaced[index];
            let distance = jump
                .jump_distance()
                .filter(|_| jump.operation() == jump::JA);
            let distance = distance.and_then(|distance| usize::try_from(distance).ok());
            let passed = distance.and_then(|distance| replaced[index + 1..].get(..distance));
            if passed.is_some_and(|passed| passed.iter().all(|one| *one == NOTHING)) {
                replaced[index] = NOTHING;
            }
        }
        Some(replaced)
    }

    /// The instruction that does the same, by what is known before it.
    fn replacement(&self, instruction: Instruction, state: &State) -> Instruction {
        if instruction.is_jump_class() && instruction.operation() != jump::JA {
            return match is_taken(instruction, state) {
                Some(true) => Instruction {
                    offset: instruction.offset,
                    ..NOTHING
                },
                Some(false) => NOTHING,
                None => instruction,
            };
        }
        let constant = self.loaded_constant(instruction, state);
        let is_signed = |number: u64| i32::try_from(number.cast_signed()).ok();
        let is_unsigned = |number: u64| u32::try_from(number).ok().map(u32::cast_signed);
        let moved = constant.and_then(|number| {
            let wide = is_signed(number).map(|immediate| (class::ALU64, immediate));
            wide.or_else(|| Some((class::ALU, is_unsigned(number)?)))
        });
        moved.map_or(instruction, |(class, immediate)| Instruction {
            code: class | alu::MOV,
            dst: instruction.dst,
            immediate,
            ..NOTHING
        })
    }
}

/// Returns whether a jump is taken, if that is known.
fn is_taken(instruction: Instruction, state: &State) -> Option<bool> {
    if instruction.operation() == jump::JA {
        return Some(true);
    }
    let left = state.register(instruction.dst).number()?;
    let right = effect::operand(instruction, state).number()?;
    evaluation::is_taken(instruction, left, right)
}
