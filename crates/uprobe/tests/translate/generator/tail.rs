//! Random tail calls.

use super::Generator;
use crate::assemble::*;

/// The index is one of so many. Some are of slots without a program, and some beyond the array.
const INDEXES: u64 = 12;

impl Generator<'_> {
    /// A tail call of this function, or a call of one that makes some. Only the main program has the context for it, and the
    /// function that is made for it.
    pub(super) fn tail_calls(&mut self) {
        let (Some(array), Some(context)) = (self.array, self.frame.context) else {
            return;
        };
        if self.frame.callable_from == 1 && self.has_tail_subprogram && self.random.one_in(2) {
            return self.call_tail_subprogram();
        }
        self.put(mov(1, context));
        self.put_all(map(2, array));
        if self.random.one_in(2) {
            // The kernel knows the slot when it translates.
            let index = self.random.below(INDEXES) as i32;
            self.put(mov_imm(3, index));
        } else {
            let number = self.random.choose(&[6, 7, 8, 9]);
            self.put(mov(3, number));
            if number != context && number != self.frame.value {
                self.put(op_imm(ALU64, 0x50, 3, 0, 7));
            } else {
                self.put(mov_imm(3, 1));
            }
            if self.random.one_in(8) {
                // Only its lower half counts.
                self.put_all(wide(0, 1 << 32));
                self.put(op(ALU64, 0x40, 3, 0, 0));
            }
        }
        self.put(call(12));
        let immediate = self.random.immediate();
        self.put(mov_imm(0, immediate));
        self.renew();
    }

    pub(super) fn call_tail_subprogram(&mut self) {
        if let Some(context) = self.frame.context {
            self.put(mov(1, context));
        }
        let function = self.subprograms + usize::from(self.has_callback) + 1;
        self.calls.push((self.here(), function));
        self.put(call_function(0));
        self.renew();
    }

    /// A function with the context as its argument, which makes tail calls.
    pub(super) fn tail_subprogram(&mut self) {
        self.subject.functions.push(self.here());
        let context = 6 + self.random.below(4) as u8;
        let value = 6 + (u64::from(context) - 5 + self.random.below(3)) as u8 % 4;
        self.frame = super::Frame {
            context: Some(context),
            value,
            numbers: (0..10)
                .filter(|one| ![context, value].contains(one))
                .collect(),
            callable_from: usize::MAX,
        };
        self.put(mov(context, 1));
        self.put_all(map_value(value, self.maps.value, 0));
        for number in self.frame.numbers.clone() {
            self.put(load(DOUBLE, number, context, 8 * i16::from(number)));
        }
        self.fill_stack();
        for _ in 0..=self.random.below(2) {
            self.tail_calls();
            let items = 1 + self.random.below(4);
            self.items(items, 1);
        }
        self.put(exit());
    }
}
