//! Constants of a frozen map, branches that they decide, and code that is never executed.

use super::{Generator, SLOTS, WIDTHS};
use crate::{assemble::*, input, trial::CONSTANT_BYTES};

/// Helpers without a form here, and one that no kernel has. The verifier only looks at what may be executed. Where it drops a
/// call of a function, Linux 6.18 rejects some programs by a fault of its own ("No program to jit").
const UNKNOWN_HELPERS: [i32; 3] = [25, 37, 195_896_081];

impl Generator<'_> {
    /// A constant in one of the registers: which, and its number.
    pub(super) fn constant(&mut self) -> (u8, u64) {
        let (width, bytes) = self.random.choose(&WIDTHS);
        let at = self.random.below(CONSTANT_BYTES as u64 - 8);
        let at = at as i32 / i32::from(bytes) * i32::from(bytes);
        let dst = self.number();
        // The address, a distance in the register, and one in the load.
        let near = self.random.below(at as u64 + 1) as i32;
        let moved = self.random.below(near as u64 + 1) as i32;
        self.put_all(map_value(dst, self.maps.constants, near - moved));
        if moved > 0 || self.random.one_in(4) {
            self.put(op_imm(ALU64, 0x00, dst, 0, moved));
        }
        let offset = (at - near) as i16;
        let is_signed = width != DOUBLE && self.random.one_in(2);
        self.put(match is_signed {
            true => load_signed(width, dst, dst, offset),
            false => load(width, dst, dst, offset),
        });
        let mut all = [0; 8];
        let length = bytes.unsigned_abs() as usize;
        all[..length].copy_from_slice(&input::constants()[at as usize..][..length]);
        let number = u64::from_le_bytes(all);
        let above = 64 - 8 * u32::from(bytes.unsigned_abs());
        let number = match is_signed {
            true => ((number << above).cast_signed() >> above).cast_unsigned(),
            false => number,
        };
        (dst, number)
    }

    /// A branch that a constant may decide: compared with another one, or a number near it, or by arithmetic.
    pub(super) fn constant_branch(&mut self, depth: u32) {
        let (mut left, number) = self.constant();
        if self.random.one_in(3) {
            // Through the stack.
            let slot = -8 * (1 + self.random.below(SLOTS as u64) as i16);
            self.put(store(DOUBLE, 10, slot, left));
            match self.random.below(4) {
                0 => self.overwrite(slot),
                1 if depth < 1 && self.has_callback => self.callback_loop_on(slot),
                _ => self.items(1, 2),
            }
            left = self.number();
            self.put(load(DOUBLE, left, 10, slot));
        }
        if self.random.one_in(3) {
            self.arithmetic();
        }
        match self.random.below(3) {
            0 => self.branch(depth),
            1 => {
                let (right, _) = self.constant();
                let compare = self.compare();
                let compare = jump(compare.code & 7, compare.code & 0xf0, left, right, 0);
                self.branch_by(compare, depth);
            }
            _ => {
                let near = (number as u32).cast_signed();
                let near = near.wrapping_add(self.random.below(3) as i32 - 1);
                let compare = self.compare();
                let compare = jump_imm(compare.code & 7, compare.code & 0xf0, left, near, 0);
                self.branch_by(compare, depth);
            }
        }
    }

    /// Another number in a slot of the stack, by a copy of the frame pointer.
    fn overwrite(&mut self, slot: i16) {
        let (pointer, number) = (self.number(), self.number());
        if pointer == number {
            return;
        }
        self.put(mov(pointer, 10));
        self.put(op_imm(ALU64, 0x00, pointer, 0, slot.into()));
        let writes = [
            store(DOUBLE, pointer, 0, number),
            store(BYTE, pointer, 2, number),
            store_imm(WORD, pointer, 0, 7),
        ];
        let write = self.random.choose(&writes);
        self.put(write);
        self.put(load(DOUBLE, pointer, pointer, 0));
    }

    /// Code that can't be executed, with a helper that does not exist.
    pub(super) fn dead_code(&mut self, depth: u32) {
        // Behind a jump, the verifier rejects it.
        let at = match self.random.below(2) {
            // By a constant, which is what it is.
            0 => {
                let (register, number) = self.constant();
                let number = (number as u32).cast_signed();
                let at = self.here();
                self.put(jump_imm(JMP32, 0x10, register, number, 0));
                at
            }
            // By two constants, one of which is in a register meanwhile.
            _ => {
                let (left, number) = self.constant();
                let right = self.number();
                if left == right {
                    return;
                }
                self.put_all(wide(right, number));
                let at = self.here();
                let operation = self.random.choose(&[0x10, 0x30, 0x70, 0xb0, 0xd0]);
                self.put(jump(JMP, operation, left, right, 0));
                at
            }
        };
        let helper = self.random.choose(&UNKNOWN_HELPERS);
        self.put(call(helper));
        self.renew();
        let items = self.random.below(3);
        self.items(items, depth + 1);
        self.land(at);
    }
}
