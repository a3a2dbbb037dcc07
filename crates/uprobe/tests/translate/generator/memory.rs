//! Random accesses to memory.

use super::{Generator, KEY, REGISTERS_AT, SLOTS, WIDTHS};
use crate::{assemble::*, trial::VALUE_BYTES};

impl Generator<'_> {
    /// Memory of the width: base and offset. Contexts and stacks are aligned, map values need not be.
    pub(super) fn memory(&mut self, width: i16) -> (u8, i16) {
        match (self.random.below(3), self.frame.context) {
            (0, Some(context)) if self.array.is_none() => {
                let slots = u64::from(REGISTERS_AT.unsigned_abs() / width.unsigned_abs());
                (context, width * self.random.below(slots) as i16)
            }
            (1, _) => {
                let slots = (8 * SLOTS / width).unsigned_abs();
                (10, -width * (1 + self.random.below(slots.into()) as i16))
            }
            _ => {
                let last = u64::from(VALUE_BYTES) - u64::from(width.unsigned_abs());
                (self.frame.value, self.random.below(last + 1) as i16)
            }
        }
    }

    pub(super) fn load(&mut self) {
        let (width, bytes) = self.random.choose(&WIDTHS);
        let (base, offset) = self.memory(bytes);
        let dst = self.number();
        let is_plain = width == DOUBLE || self.frame.context == Some(base);
        if is_plain || self.random.one_in(2) {
            self.put(load(width, dst, base, offset));
        } else {
            self.put(load_signed(width, dst, base, offset));
        }
    }

    pub(super) fn store(&mut self) {
        let (width, bytes) = self.random.choose(&WIDTHS);
        let (base, offset) = self.memory(bytes);
        if self.random.one_in(3) {
            let immediate = self.random.immediate();
            self.put(store_imm(width, base, offset, immediate));
        } else {
            let number = self.number();
            self.put(store(width, base, offset, number));
        }
    }

    pub(super) fn atomic(&mut self) {
        let base = self.frame.value;
        if self.random.one_in(4) {
            let (width, bytes) = self.random.choose(&WIDTHS);
            let slots = u64::from(VALUE_BYTES) / u64::from(bytes.unsigned_abs());
            let offset = bytes * self.random.below(slots) as i16;
            let number = self.number();
            if self.random.one_in(2) {
                self.put(load_acquire(width, number, base, offset));
            } else {
                self.put(atomic(width, STORE_RELEASE, base, offset, number));
            }
            return;
        }
        let (width, bytes) = self.random.choose(&[(WORD, 4), (DOUBLE, 8)]);
        let operation = self.random.choose(&[0x00, 0x40, 0x50, 0xa0]);
        let number = self.number();
        if self.random.one_in(5) {
            let offset = -bytes * (1 + self.random.below(4) as i16);
            return self.put(atomic(width, operation, 10, offset, number));
        }
        let slots = u64::from(VALUE_BYTES) / u64::from(bytes.unsigned_abs());
        let offset = bytes * self.random.below(slots) as i16;
        let operation = match self.random.below(8) {
            0 => XCHG,
            1 | 2 => CMPXCHG,
            3 => operation,
            _ => operation | FETCH,
        };
        if operation == CMPXCHG && self.random.one_in(2) {
            // Else it never succeeds.
            self.put(load(width, 0, base, offset));
        }
        self.put(atomic(width, operation, base, offset, number));
        if (operation, width) == (CMPXCHG, WORD) {
            // The kernel leaves the upper half of R0 where its verifier has met the state behind it before.
            self.put(op(ALU, 0xb0, 0, 0, 0));
        }
    }

    /// Map memory at an offset that is only known when it runs.
    pub(super) fn variable_access(&mut self) {
        let (pointer, index) = (self.number(), self.number());
        if pointer == index {
            return;
        }
        let value = self.frame.value;
        self.put(op_imm(ALU64, 0x50, index, 0, 0x78));
        self.put(mov(pointer, value));
        self.put(op(ALU64, 0x00, pointer, index, 0));
        let (width, bytes) = self.random.choose(&WIDTHS);
        let offset = self
            .random
            .below(u64::from(VALUE_BYTES) - 0x78 - bytes as u64) as i16;
        match self.random.below(3) {
            0 => self.put(store(width, pointer, offset, index)),
            1 => self.put(load(width, index, pointer, offset)),
            _ => self.put(atomic(DOUBLE, 0x40 | FETCH, pointer, offset & !7, index)),
        }
        // A number again.
        self.put(load(width, pointer, pointer, offset));
    }

    /// A pointer in one of the other registers, for an access or two.
    pub(super) fn pointer_in_number(&mut self) {
        let pointer = self.number();
        let value = self.frame.value;
        let (width, bytes) = self.random.choose(&WIDTHS);
        let offset = bytes * self.random.below(16) as i16;
        self.put(mov(pointer, value));
        let number = self.number();
        if number != pointer {
            match self.random.below(4) {
                0 => self.put(store(width, pointer, offset, number)),
                1 => {
                    let operation = self.random.choose(&[0x00, 0x40, 0x50, 0xa0]);
                    let is_fetching = self.random.one_in(2);
                    let operation = operation | if is_fetching { FETCH } else { 0 };
                    let width = self.random.choose(&[WORD, DOUBLE]);
                    self.put(atomic(width, operation, pointer, offset & !7, number));
                }
                2 => {
                    let immediate = self.random.immediate();
                    self.put(store_imm(width, pointer, offset, immediate));
                }
                _ => self.put(atomic(width, STORE_RELEASE, pointer, offset, number)),
            }
        }
        self.put(load(width, pointer, pointer, offset));
    }

    /// The stack where only a copy of the frame pointer reaches.
    pub(super) fn deep_stack(&mut self) {
        let (pointer, number) = (self.number(), self.number());
        if pointer == number {
            return;
        }
        let depth = KEY - 8 * (1 + self.random.below(3) as i16);
        self.put(mov(pointer, 10));
        self.put(op_imm(ALU64, 0x00, pointer, 0, depth.into()));
        self.put(store(DOUBLE, pointer, 0, number));
        self.put(load(DOUBLE, pointer, pointer, 0));
    }
}
