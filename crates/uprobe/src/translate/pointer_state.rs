//! Possible contents of registers and stack slots at one place of a program with an arena (`pointers/`).

use super::instruction::FRAME;

/// Kinds that a value may be of.
pub(super) mod kind {
    /// A number.
    pub(in super::super) const NUMBER: u8 = 1;
    /// The number 0: a pointer to nothing, most likely.
    pub(in super::super) const ZERO: u8 = 2;
    /// The kernel's form of a pointer into the arena.
    pub(in super::super) const ARENA: u8 = 4;
    /// A pointer to the stack.
    pub(in super::super) const STACK: u8 = 8;
    /// A pointer to anything else.
    pub(in super::super) const OTHER: u8 = 16;
    /// Value read from a stack where that can't be followed: any of these. It is as good as a number, but no access
    /// may be made through it.
    pub(in super::super) const UNKNOWN: u8 = 32;
    pub(in super::super) const NUMBERS: u8 = NUMBER | ZERO;
    pub(in super::super) const POINTERS: u8 = STACK | OTHER;
    pub(in super::super) const ANY: u8 = NUMBERS | POINTERS | ARENA | UNKNOWN;
}

/// Slots of 8 bytes of a function's stack.
pub(super) const SLOTS: usize = 64;
pub(super) const LOWEST: i32 = -8 * SLOTS as i32;

/// Possible content of a register or a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) kinds: u8,
    /// Owner of the stack that a pointer leads to.
    pub(super) frame: Frame,
    /// Offset from the frame pointer, or from the pointer that the function was given. `None` where it is not known.
    pub(super) offset: Option<i32>,
    /// Contents of a caller's stack from a pointer on, when the function was called.
    pub(super) contents: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Frame {
    /// No pointer to a stack.
    #[default]
    None,
    /// The function's own.
    Own,
    /// That of one which called it.
    Caller,
    /// One or the other.
    Either,
}

impl Value {
    pub(super) const fn from_kinds(kinds: u8) -> Self {
        Value {
            kinds,
            frame: Frame::None,
            offset: None,
            contents: 0,
        }
    }

    pub(super) fn is(self, kinds: u8) -> bool {
        self.kinds & kinds != 0
    }

    pub(super) fn joined(self, other: Value) -> Value {
        let is_stack = |value: Value| value.is(kind::STACK);
        let (frame, offset) = match (is_stack(self), is_stack(other)) {
            (_, false) => (self.frame, self.offset),
            (false, _) => (other.frame, other.offset),
            _ if self.frame != other.frame => (Frame::Either, None),
            _ => (
                self.frame,
                self.offset.filter(|_| self.offset == other.offset),
            ),
        };
        Value {
            kinds: self.kinds | other.kinds,
            frame,
            offset,
            contents: self.contents | other.contents,
        }
    }

    /// The same, where nothing is known of the stack that it may point to.
    pub(super) fn somewhere(self) -> Value {
        Value {
            kinds: self.kinds,
            frame: Frame::Either,
            offset: None,
            contents: kind::ANY,
        }
    }

    /// Returns whether it may lead below what the function was given.
    pub(super) fn is_below(self) -> bool {
        self.frame != Frame::Own && !matches!(self.offset, Some(0..))
    }

    /// Returns what a read somewhere on a stack gives that holds values of these kinds. Where the arena's pointers are among them,
    /// it can't be followed: as a mere number it would be no arena's pointer any more where it meets another one.
    pub(super) fn read(kinds: u8) -> Value {
        let pointers = match kinds & kind::ARENA {
            0 => kinds & (kind::POINTERS | kind::UNKNOWN),
            _ => kind::UNKNOWN,
        };
        Value::from_kinds(kind::NUMBER | pointers).somewhere()
    }

    /// The same after arithmetic on what may be an arena's pointer: a number is not 0 any more.
    pub(super) fn counted(self) -> Value {
        Value {
            offset: None,
            ..self
        }
    }

    /// The same, so much further.
    pub(super) fn moved(self, distance: Option<i32>) -> Value {
        let moved = |offset: i32| offset.checked_add(distance?);
        Value {
            offset: self.offset.and_then(moved),
            ..self
        }
    }
}

/// Kinds that stay the same where a number is added.
pub(super) const FOLLOWED: u8 = kind::POINTERS | kind::UNKNOWN;
pub(super) const NUMBER: Value = Value::from_kinds(kind::NUMBER);

/// Knowledge before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) registers: [Value; 11],
    pub(super) slots: [Value; SLOTS],
}

impl State {
    pub(super) fn empty() -> Self {
        let mut state = State {
            registers: [Value::default(); 11],
            slots: [Value::default(); SLOTS],
        };
        state.registers[usize::from(FRAME)] = Value {
            kinds: kind::STACK,
            frame: Frame::Own,
            offset: Some(0),
            contents: 0,
        };
        state
    }

    /// Returns whether it changed.
    pub(super) fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        let own = self.registers.iter_mut().chain(&mut self.slots);
        for (own, other) in own.zip(other.registers.iter().chain(&other.slots)) {
            let joined = own.joined(*other);
            changed |= joined != *own;
            *own = joined;
        }
        changed
    }

    /// Returns what slots from an offset on may hold.
    pub(super) fn contents(&self, from: i32) -> u8 {
        let count = State::slot(from).map_or(SLOTS, |(slot, _)| slot + 1);
        let slots = self.slots[..count].iter();
        slots.fold(0, |all, slot| all | slot.kinds)
    }

    /// A value, for a function that is called.
    pub(super) fn given(&self, value: Value) -> Value {
        if !value.is(kind::STACK) {
            return value;
        }
        let contents = match (value.frame, value.offset) {
            (Frame::Own, offset) => self.contents(offset.unwrap_or(LOWEST)),
            (_, Some(0..)) => value.contents,
            _ => kind::ANY,
        };
        Value {
            kinds: value.kinds,
            frame: Frame::Caller,
            offset: Some(0),
            contents,
        }
    }

    /// The slot at an offset from the frame pointer, and whether it begins there.
    pub(super) fn slot(offset: i32) -> Option<(usize, bool)> {
        let depth = usize::try_from(-i64::from(offset)).ok()?;
        let slot = depth
            .div_ceil(8)
            .checked_sub(1)
            .filter(|slot| *slot < SLOTS)?;
        Some((slot, depth.is_multiple_of(8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_an_arenas_pointer_is_never_read_as_a_mere_number() {
        let read = |kinds| Value::read(kinds).kinds;
        for others in [0, kind::NUMBER, kind::OTHER, kind::STACK | kind::ZERO] {
            let kinds = read(kind::ARENA | others);
            assert_eq!(kinds, kind::NUMBER | kind::UNKNOWN, "{others}");
        }
        assert_eq!(read(kind::ZERO), kind::NUMBER);
        assert_eq!(read(kind::OTHER | kind::ZERO), kind::NUMBER | kind::OTHER);
        assert_eq!(read(kind::UNKNOWN), kind::NUMBER | kind::UNKNOWN);
    }
}
