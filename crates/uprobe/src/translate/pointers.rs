//! Which instructions of a program with an arena work on the arena's pointers.
//!
//! The verifier knows that of each register on each path: it has the kernel add the arena's address to such accesses, and
//! do arithmetic on such pointers in 32 bits. It does not tell, so it is found out here, for all paths together: what
//! each register and each slot of the stack may hold. Where an arena's pointer and another one may meet, the program is
//! refused. What can't be a pointer to anything else counts as the arena's, since such accesses are checked when they run.

mod access;

use super::{
    error::Result,
    function::{self, Function, each},
    instruction::{Cast, FRAME, Instruction, alu, class, jump, mode, pseudo},
    pointer_state::{FOLLOWED, Frame, LOWEST, NUMBER, SLOTS, State, Value, kind},
};

/// The helpers that return pointers: lookups in maps, `bpf_ringbuf_reserve`, `bpf_per_cpu_ptr`, `bpf_this_cpu_ptr`.
const RETURN_POINTERS: [i32; 5] = [1, 131, 153, 154, 195];
/// Helpers that write nothing where their arguments point to: lookups, updates and deletions of maps, tail calls, output to
/// rings, lines of text, `bpf_strncmp`.
const WRITE_NOTHING: [i32; 10] = [1, 2, 3, 6, 12, 130, 131, 177, 182, 195];
/// The one that calls a function.
const LOOP: i32 = 181;

/// Effect of an instruction on an arena's pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ArenaUse {
    /// Not at all.
    #[default]
    None,
    /// An access to the arena.
    Access,
    /// Arithmetic of 64 bits, which the kernel does in 32.
    Narrow,
    /// Either of them, which can't be known.
    Unclear(&'static str),
}

/// The uses by instruction. `arena` is the arena's file descriptor.
pub(crate) fn arena_uses(
    program: &[Instruction],
    functions: &[Function],
    arena: i32,
) -> Result<Vec<ArenaUse>> {
    let mut analysis = Analysis {
        program,
        functions,
        arena,
        states: vec![None; program.len()],
        is_leader: leaders(program, functions),
        changed: vec![false; program.len()],
        returns: vec![None; functions.len()],
        spills: 0,
        given: 0,
        context: Value::from_kinds(kind::OTHER | kind::ZERO),
        writes_below: false,
        uses: vec![ArenaUse::None; program.len()],
    };
    let mut start = State::empty();
    start.registers[1] = Value::from_kinds(kind::OTHER);
    analysis.reach(0, &start);
    while let Some(next) = analysis.changed.iter().position(|changed| *changed) {
        // Most blocks lead to later ones.
        for leader in next..program.len() {
            if std::mem::take(&mut analysis.changed[leader]) {
                analysis.block(leader)?;
            }
        }
    }
    // What no path leads to is never executed.
    Ok(analysis.uses)
}

/// The first instructions of what is executed as a whole.
fn leaders(program: &[Instruction], functions: &[Function]) -> Vec<bool> {
    let mut leaders = vec![false; program.len()];
    for function in functions {
        leaders[function.start] = true;
    }
    for (index, instruction) in each(program) {
        if let Some(distance) = instruction.jump_distance() {
            let target = usize::try_from(index as i64 + 1 + distance).ok();
            for leader in [target, Some(index + 1)].into_iter().flatten() {
                if let Some(leader) = leaders.get_mut(leader) {
                    *leader = true;
                }
            }
        }
    }
    leaders
}

struct Analysis<'a> {
    program: &'a [Instruction],
    functions: &'a [Function],
    arena: i32,
    /// Knowledge at each leader; nothing where no path leads to it so far.
    states: Vec<Option<Box<State>>>,
    is_leader: Vec<bool>,
    /// The leaders whose state changed since their block was looked at.
    changed: Vec<bool>,
    /// Result of each function; nothing where it does not return so far.
    returns: Vec<Option<Value>>,
    /// Kinds of pointers that are anywhere on a stack.
    spills: u8,
    /// Kinds of pointers that functions write to stacks of their callers.
    given: u8,
    /// Arguments of callbacks.
    context: Value,
    /// True if functions may write the stacks of their callers below what they were given.
    writes_below: bool,
    uses: Vec<ArenaUse>,
}

impl Analysis<'_> {
    fn reach(&mut self, leader: usize, state: &State) {
        let changed = match &mut self.states[leader] {
            Some(known) => known.join(state),
            unknown => {
                *unknown = Some(Box::new(state.clone()));
                true
            }
        };
        self.changed[leader] |= changed;
    }

    /// A fact that counts everywhere has changed.
    fn restart(&mut self) {
        for (changed, state) in self.changed.iter_mut().zip(&self.states) {
            *changed = state.is_some();
        }
    }

    fn block(&mut self, leader: usize) -> Result<()> {
        let Some(mut state) = self.states[leader].clone() else {
            return Ok(());
        };
        let mut index = leader;
        loop {
            let instruction = self.program[index];
            if instruction.is_exit() {
                self.exit(leader, state.registers[0]);
                return Ok(());
            }
            if let Some(distance) = instruction.jump_distance() {
                let target = function::target(self.program, index, distance)?;
                self.reach(target, &state);
                if instruction.operation() == jump::JA {
                    return Ok(());
                }
            } else if instruction.is_call() {
                if !self.call(index, instruction, &mut state)? {
                    return Ok(());
                }
            } else {
                self.step(index, instruction, &mut state);
            }
            index += if instruction.is_wide() { 2 } else { 1 };
            match self.is_leader.get(index) {
                None => return Ok(()),
                Some(true) => {
                    self.reach(index, &state);
                    return Ok(());
                }
                Some(false) => {}
            }
        }
    }

    /// The function that an instruction is of.
    fn function(&self, index: usize) -> usize {
        let next = self.functions.partition_point(|one| one.start <= index);
        next.saturating_sub(1)
    }

    fn exit(&mut self, index: usize, result: Value) {
        let function = self.function(index);
        // A pointer to a stack is to that of a caller, or of one further up.
        let result = result.somewhere();
        let known = self.returns[function];
        let joined = known.unwrap_or_default().joined(result);
        if known != Some(joined) {
            self.returns[function] = Some(joined);
            self.restart();
        }
    }

    /// Returns whether it returns, as far as is known.
    fn call(&mut self, index: usize, instruction: Instruction, state: &mut State) -> Result<bool> {
        let mut result = match RETURN_POINTERS.contains(&instruction.immediate) {
            true => Value::from_kinds(kind::OTHER | kind::ZERO),
            false => NUMBER,
        };
        let arguments = &state.registers[1..6];
        let mut calls = None;
        if instruction.src == pseudo::CALL {
            let mut entry = State::empty();
            for (into, argument) in entry.registers[1..6].iter_mut().zip(arguments) {
                *into = state.given(*argument);
            }
            calls = Some((instruction.immediate, entry));
        }
        let writes = calls.is_none() && !WRITE_NOTHING.contains(&instruction.immediate);
        let is_below = |one: &Value| one.is(kind::STACK) && one.is_below();
        if writes && !self.writes_below && state.registers[1..6].iter().any(is_below) {
            self.writes_below = true;
            self.restart();
        }
        let is_loop = calls.is_none() && instruction.immediate == LOOP;
        let is_function = calls.is_some() || is_loop;
        if is_loop {
            let context = self.context.joined(state.given(state.registers[3]));
            if context != self.context {
                self.context = context;
                self.restart();
            }
        }
        let written = self.written_by(instruction.immediate, is_function, state);
        if let Some((distance, entry)) = calls {
            let start = function::target(self.program, index, distance)?;
            self.reach(start, &entry);
            match self.returns[self.function(start)] {
                Some(returned) => result = returned,
                None => return Ok(false),
            }
        }
        if let Some(from) = written {
            let kinds = match is_function {
                true => kind::NUMBER | self.given,
                false => kind::NUMBER,
            };
            let count = match from {
                0 => 0,
                from => State::slot(from).map_or(SLOTS, |(slot, _)| slot + 1),
            };
            for slot in &mut state.slots[..count] {
                *slot = slot.joined(Value::from_kinds(kinds).somewhere());
            }
        }
        state.registers[1..6].fill(Value::default());
        state.registers[0] = result;
        Ok(true)
    }

    /// From where on a call may write the function's stack; nothing where it does not.
    fn written_by(&self, helper: i32, is_function: bool, state: &State) -> Option<i32> {
        if !is_function && WRITE_NOTHING.contains(&helper) {
            return None;
        }
        let arguments = state.registers[1..6]
            .iter()
            .filter(|one| one.is(kind::STACK));
        let from = |value: &Value| match value.frame {
            Frame::Own => value.offset.unwrap_or(LOWEST),
            Frame::Either => LOWEST,
            // It is not this function's.
            Frame::Caller | Frame::None => 0,
        };
        let lowest = arguments.map(from).min()?;
        // Through pointers on the stack, too.
        let leads_on = state.slots.iter().any(|one| one.is(kind::STACK));
        match is_function && (leads_on || self.writes_below) {
            true => Some(LOWEST),
            false => Some(lowest),
        }
    }

    /// An instruction other than a call, a jump or an exit.
    fn step(&mut self, index: usize, instruction: Instruction, state: &mut State) {
        let Instruction { dst, src, .. } = instruction;
        let (Some(&to), Some(&from)) = (
            state.registers.get(usize::from(dst)),
            state.registers.get(usize::from(src)),
        ) else {
            // The translator refuses it.
            return;
        };
        let written = match instruction.class() {
            class::ALU | class::ALU64 => Some((dst, self.arithmetic(index, instruction, to, from))),
            class::LD => Some((dst, self.wide(index, instruction))),
            class::LDX => Some((dst, self.load(index, instruction, from, state))),
            class::ST => {
                let value = match instruction.immediate {
                    0 => Value::from_kinds(kind::ZERO),
                    _ => NUMBER,
                };
                self.store(index, instruction, to, value, state);
                None
            }
            _ if instruction.mode() == mode::ATOMIC => {
                self.atomic(index, instruction, (to, from), state)
            }
            _ => {
                self.store(index, instruction, to, from, state);
                None
            }
        };
        if let Some((register, value)) = written.filter(|(register, _)| *register != FRAME) {
            state.registers[usize::from(register)] = value;
        }
    }

    fn arithmetic(
        &mut self,
        index: usize,
        instruction: Instruction,
        dst: Value,
        src: Value,
    ) -> Value {
        self.uses[index] = ArenaUse::None;
        let is_wide = instruction.class() == class::ALU64;
        let is_register = instruction.has_register_operand();
        match instruction.operation() {
            alu::MOV if instruction.cast() == Some(Cast::ToKernel) => {
                return Value::from_kinds(kind::ARENA);
            }
            alu::MOV if is_register && is_wide && instruction.offset == 0 => return src,
            alu::MOV if !is_register && instruction.immediate == 0 => {
                return Value::from_kinds(kind::ZERO);
            }
            // The verifier keeps no pointer.
            alu::MOV | alu::NEG | alu::END => return NUMBER,
            _ => {}
        }
        if dst.is(kind::ARENA) {
            let is_unclear = dst.is(kind::POINTERS | kind::NUMBER | kind::UNKNOWN);
            self.uses[index] = match (is_wide, is_unclear) {
                (false, _) => ArenaUse::None,
                (true, false) => ArenaUse::Narrow,
                (true, true) => ArenaUse::Unclear("arithmetic on what may be an arena's pointer"),
            };
            return dst.counted();
        }
        let src = if is_register { src } else { NUMBER };
        let number = match dst.is(kind::NUMBERS) || dst.kinds == 0 {
            true => kind::NUMBER,
            false => 0,
        };
        let constant = (!is_register && is_wide).then_some(instruction.immediate);
        match instruction.operation() {
            alu::ADD => {
                // A pointer stays one; a number becomes what is added to it.
                let pointer = Value {
                    kinds: dst.kinds & FOLLOWED,
                    ..dst.moved(constant)
                };
                let added = match number {
                    0 => Value::default(),
                    _ => Value {
                        kinds: src.kinds & (FOLLOWED | kind::ARENA),
                        offset: None,
                        ..src
                    },
                };
                pointer.joined(added).joined(Value::from_kinds(number))
            }
            alu::SUB => {
                let distance = match src.is(kind::POINTERS | kind::ARENA) {
                    true => kind::NUMBER,
                    false => number,
                };
                let pointer = Value {
                    kinds: dst.kinds & FOLLOWED,
                    ..dst.moved(constant.and_then(i32::checked_neg))
                };
                pointer.joined(Value::from_kinds(distance))
            }
            _ => NUMBER,
        }
    }

    fn wide(&mut self, index: usize, instruction: Instruction) -> Value {
        match instruction.src {
            pseudo::MAP_VALUE if instruction.immediate == self.arena => NUMBER,
            pseudo::FUNCTION => {
                // A callback of bpf_loop: the round, and the caller's context.
                if let Ok(start) = function::target(self.program, index, instruction.immediate) {
                    let mut entry = State::empty();
                    entry.registers[1] = NUMBER;
                    entry.registers[2] = self.context;
                    self.reach(start, &entry);
                }
                Value::from_kinds(kind::OTHER)
            }
            0 => NUMBER,
            _ => Value::from_kinds(kind::OTHER),
        }
    }
}
