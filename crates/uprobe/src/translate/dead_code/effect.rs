//! Effects of instructions on the knowledge.

use super::{
    super::instruction::{FRAME, Instruction, alu, atomic, class, mode, pseudo},
    Analysis, evaluation,
    state::{State, Value},
};

/// The register that an exchange compares with, and gets.
const COMPARED: u8 = 0;

impl Analysis<'_> {
    /// An instruction other than a jump or an exit.
    pub(super) fn step(&self, index: usize, instruction: Instruction, state: &mut State) {
        let Instruction { dst, offset, .. } = instruction;
        match instruction.class() {
            class::ALU | class::ALU64 => state.set(dst, arithmetic(instruction, state)),
            class::LD if instruction.is_wide() => state.set(dst, self.wide(index, instruction)),
            class::LDX => state.set(dst, self.loaded(instruction, state).into()),
            class::ST | class::STX if instruction.mode() == mode::MEM => {
                let stored = match instruction.class() {
                    class::ST => number(instruction.immediate),
                    _ => state.register(instruction.src),
                };
                match dst {
                    FRAME => state.set_stack(offset, instruction.width(), stored),
                    _ => state.forget_stack(),
                }
            }
            class::STX if instruction.mode() == mode::ATOMIC => atomic(instruction, state),
            // Calls; and loads from packets, which leave as little.
            _ => state.forget_called(),
        }
    }

    fn wide(&self, index: usize, instruction: Instruction) -> Value {
        let second = self.program.get(index + 1).copied().unwrap_or_default();
        let [low, high] = [instruction.immediate, second.immediate].map(i32::cast_unsigned);
        let fd = instruction.immediate;
        match instruction.src {
            0 => Value::Number(u64::from(high) << 32 | u64::from(low)),
            pseudo::MAP_VALUE if self.constants.contains_key(&fd) => Value::Constants {
                fd,
                offset: high.into(),
            },
            _ => Value::Unknown,
        }
    }

    /// The number that a load gives, if it is known.
    fn loaded(&self, instruction: Instruction, state: &State) -> Option<u64> {
        let loaded = match instruction.src {
            FRAME => state.stack(instruction.offset, instruction.width())?,
            _ => self.constant(instruction, state)?,
        };
        extended(instruction, loaded)
    }

    /// The constant that a load gives, if it reads one.
    pub(super) fn loaded_constant(&self, instruction: Instruction, state: &State) -> Option<u64> {
        let is_load = instruction.class() == class::LDX && instruction.src != FRAME;
        let loaded = self.constant(instruction, state).filter(|_| is_load)?;
        extended(instruction, loaded)
    }

    /// The bytes that a load reads, if they are constants.
    fn constant(&self, instruction: Instruction, state: &State) -> Option<u64> {
        let Value::Constants { fd, offset } = state.register(instruction.src) else {
            return None;
        };
        let start = offset.checked_add_signed(instruction.offset.into())?;
        let start = usize::try_from(start).ok()?;
        let bytes = self.constants.get(&fd)?.get(start..)?;
        let bytes = bytes.get(..instruction.width().bytes() as usize)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }
}

/// The number in a register that a load gives: with its sign where the load says so.
fn extended(instruction: Instruction, loaded: u64) -> Option<u64> {
    let above = 64 - 8 * instruction.width().bytes();
    match instruction.mode() {
        mode::MEM => Some(loaded),
        mode::MEMSX => Some(((loaded << above).cast_signed() >> above).cast_unsigned()),
        _ => None,
    }
}

/// The immediate number, with its sign.
fn number(immediate: i32) -> Value {
    Value::Number(i64::from(immediate).cast_unsigned())
}

/// The second operand of arithmetic and comparisons.
pub(super) fn operand(instruction: Instruction, state: &State) -> Value {
    match instruction.has_register_operand() {
        true => state.register(instruction.src),
        false => number(instruction.immediate),
    }
}

fn arithmetic(instruction: Instruction, state: &State) -> Value {
    let operation = instruction.operation();
    // These have one operand: a bit of a conversion says to which order of bytes, and the other two don't read theirs.
    let source = match operation {
        alu::END | alu::NEG => Value::Number(0),
        _ => operand(instruction, state),
    };
    let dst = match operation {
        alu::MOV => Value::Number(0),
        _ => state.register(instruction.dst),
    };
    let is_plain = instruction.class() == class::ALU64 && instruction.offset == 0;
    match (dst, source) {
        (Value::Number(dst), Value::Number(source)) => {
            evaluation::arithmetic(instruction, dst, source).into()
        }
        (_, Value::Constants { .. }) if is_plain && operation == alu::MOV => source,
        (Value::Constants { fd, offset }, Value::Number(distance)) if is_plain => match operation {
            alu::ADD => Value::Constants {
                fd,
                offset: offset.wrapping_add(distance),
            },
            alu::SUB => Value::Constants {
                fd,
                offset: offset.wrapping_sub(distance),
            },
            _ => Value::Unknown,
        },
        _ => Value::Unknown,
    }
}

fn atomic(instruction: Instruction, state: &mut State) {
    let Instruction {
        dst,
        src,
        immediate,
        ..
    } = instruction;
    if immediate == atomic::LOAD_ACQUIRE {
        return state.set(dst, Value::Unknown);
    }
    match dst {
        FRAME => state.set_stack(instruction.offset, instruction.width(), Value::Unknown),
        _ => state.forget_stack(),
    }
    if immediate == atomic::CMPXCHG {
        state.set(COMPARED, Value::Unknown);
    } else if immediate & atomic::FETCH != 0 {
        state.set(src, Value::Unknown);
    }
}
