//! Knowledge of registers and the stack at one instruction.

use super::super::instruction::{FRAME, Width};
use std::collections::BTreeMap;

/// A register's content. Two that differ are unknown together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    #[default]
    Unknown,
    Number(u64),
    /// The address of a map's constants, and a distance from their beginning.
    Constants {
        fd: i32,
        offset: u64,
    },
}

impl Value {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Value::Unknown, Value::Number)
    }
}

/// The knowledge. A new one has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// R0 to R9.
    registers: [Value; FRAME as usize],
    /// The bytes of the stack that are known, by their distance from the frame pointer.
    stack: BTreeMap<i32, u8>,
}

impl State {
    pub(super) fn register(&self, register: u8) -> Value {
        let value = self.registers.get(usize::from(register));
        value.copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        // The translator refuses other registers, and changes of the frame pointer.
        if let Some(known) = self.registers.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// Bytes at a distance from the frame pointer, if all are known.
    pub(super) fn stack(&self, offset: i16, width: Width) -> Option<u64> {
        let places = i32::from(offset)..i32::from(offset) + width.bytes();
        places.rev().try_fold(0, |number, at| {
            let byte = self.stack.get(&at)?;
            Some(number << 8 | u64::from(*byte))
        })
    }

    pub(super) fn set_stack(&mut self, offset: i16, width: Width, value: Value) {
        let bytes = value.number().map(u64::to_le_bytes);
        for (index, at) in (0..8).zip(i32::from(offset)..i32::from(offset) + width.bytes()) {
            match bytes {
                Some(bytes) => self.stack.insert(at, bytes[index]),
                None => self.stack.remove(&at),
            };
        }
    }

    /// A store by another pointer than the frame pointer, which may lead to the stack.
    pub(super) fn forget_stack(&mut self) {
        self.stack.clear();
    }

    /// The part that a call leaves: R6 to R9. A function or a helper may have written the stack through its arguments.
    pub(super) fn forget_called(&mut self) {
        self.registers[..6].fill(Value::Unknown);
        self.forget_stack();
    }

    /// The state in which a function begins that is called: with its arguments R1 to R5, and a stack of its own.
    pub(super) fn called(&self) -> State {
        let mut entry = State::default();
        entry.registers[1..6].copy_from_slice(&self.registers[1..6]);
        entry
    }

    /// Keeps what another path knows too. Returns whether that is less than before.
    pub(super) fn join(&mut self, other: &State) -> bool {
        let before = self.stack.len();
        self.stack
            .retain(|at, byte| other.stack.get(at) == Some(byte));
        let mut changed = self.stack.len() < before;
        for (known, other) in self.registers.iter_mut().zip(other.registers) {
            if *known != other && *known != Value::Unknown {
                *known = Value::Unknown;
                changed = true;
            }
        }
        changed
    }
}
