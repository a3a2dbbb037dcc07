//! Reads and writes of memory, by what may be an arena's pointer.

use super::{
    super::{
        instruction::{Instruction, Width, atomic},
        pointer_state::{FOLLOWED, Frame, LOWEST, NUMBER, State, Value, kind},
    },
    Analysis, ArenaUse,
};

impl Analysis<'_> {
    /// Notes an access, and says what its base is.
    fn access(&mut self, index: usize, base: Value) {
        self.uses[index] = match (base.is(kind::ARENA), base.is(kind::POINTERS)) {
            (true, true) => ArenaUse::Unclear("an access to what may be an arena"),
            _ if base.is(kind::UNKNOWN) => {
                ArenaUse::Unclear("an access by a pointer that can't be followed")
            }
            (false, true) => ArenaUse::None,
            (_, false) => ArenaUse::Access,
        };
    }

    pub(super) fn load(
        &mut self,
        index: usize,
        instruction: Instruction,
        base: Value,
        state: &State,
    ) -> Value {
        self.access(index, base);
        if instruction.width() != Width::Double || !base.is(kind::STACK) {
            return NUMBER;
        }
        let at = base.moved(Some(instruction.offset.into())).offset;
        let mut value = match (base.frame, at) {
            (Frame::Own, Some(at)) => match State::slot(at) {
                Some((slot, true)) if state.slots[slot].kinds != 0 => state.slots[slot],
                _ => NUMBER,
            },
            (Frame::Own, None) => Value::read(state.contents(LOWEST)),
            (Frame::Caller, Some(0..)) => Value::read(base.contents | self.given),
            _ => Value::read(self.spills),
        };
        if base.kinds != kind::STACK {
            value = value.joined(NUMBER);
        }
        value
    }

    pub(super) fn store(
        &mut self,
        index: usize,
        instruction: Instruction,
        base: Value,
        value: Value,
        state: &mut State,
    ) {
        self.access(index, base);
        if !base.is(kind::STACK) {
            return;
        }
        let pointers = value.kinds & (FOLLOWED | kind::ARENA);
        if self.spills | pointers != self.spills {
            self.spills |= pointers;
            self.restart();
        }
        let target = base.moved(Some(instruction.offset.into()));
        let at = match (target.frame, target.offset) {
            (Frame::Own, Some(at)) if base.kinds == kind::STACK => at,
            (frame, _) => {
                if value.is(kind::ARENA) {
                    let what = "an arena's pointer that is kept where it can't be followed";
                    self.uses[index] = ArenaUse::Unclear(what);
                }
                let is_below = target.is_below();
                let changed = self.given | pointers != self.given || is_below && !self.writes_below;
                if frame != Frame::Own && changed {
                    self.given |= pointers;
                    self.writes_below |= is_below;
                    self.restart();
                }
                if frame != Frame::Caller {
                    for slot in &mut state.slots {
                        *slot = slot.joined(value).joined(NUMBER);
                    }
                }
                return;
            }
        };
        let bytes = instruction.width().bytes();
        match State::slot(at) {
            Some((slot, true)) if bytes == 8 => state.slots[slot] = value,
            _ => {
                for byte in at..at + bytes {
                    if let Some((slot, _)) = State::slot(byte) {
                        state.slots[slot] = NUMBER;
                    }
                }
            }
        }
    }

    /// The register that it writes, if it does.
    pub(super) fn atomic(
        &mut self,
        index: usize,
        instruction: Instruction,
        (dst, src): (Value, Value),
        state: &mut State,
    ) -> Option<(u8, Value)> {
        match instruction.immediate {
            atomic::LOAD_ACQUIRE => {
                let value = self.load(index, instruction, src, state);
                return Some((instruction.dst, value));
            }
            atomic::STORE_RELEASE => {
                self.store(index, instruction, dst, src, state);
                return None;
            }
            _ => {}
        }
        let before = self.load(index, instruction, dst, state);
        // The verifier keeps no pointer there.
        self.store(index, instruction, dst, NUMBER, state);
        match instruction.immediate {
            atomic::CMPXCHG => Some((0, before.joined(NUMBER))),
            other if other & atomic::FETCH != 0 => Some((instruction.src, before.joined(NUMBER))),
            _ => None,
        }
    }
}
