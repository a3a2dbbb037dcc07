//! Random branches, loops and calls.

use bpfcost_uprobe::translate::Instruction;

use super::{Generator, JUMPS, KEY, SLOTS};
use crate::{
    assemble::*,
    trial::{ENTRY_BYTES, VALUE_BYTES},
};

impl Generator<'_> {
    pub(super) fn compare(&mut self) -> Instruction {
        let class = self.random.choose(&[JMP, JMP32]);
        let operation = self.random.choose(&JUMPS);
        let (dst, src) = (self.number(), self.number());
        if self.random.one_in(2) {
            jump(class, operation, dst, src, 0)
        } else {
            jump_imm(class, operation, dst, self.random.immediate(), 0)
        }
    }

    pub(super) fn branch(&mut self, depth: u32) {
        let compare = self.compare();
        self.branch_by(compare, depth);
    }

    pub(super) fn branch_by(&mut self, compare: Instruction, depth: u32) {
        let at = self.here();
        self.put(compare);
        let items = 1 + self.random.below(4);
        self.items(items, depth + 1);
        if self.random.one_in(2) {
            let skip = self.here();
            let is_far = self.random.one_in(2);
            self.put(if is_far { always_far(0) } else { always(0) });
            self.land(at);
            let items = 1 + self.random.below(3);
            self.items(items, depth + 1);
            let distance = self.here() - skip - 1;
            let instruction = &mut self.subject.instructions[skip];
            if is_far {
                instruction.immediate = distance as i32;
            } else {
                instruction.offset = distance as i16;
            }
        } else {
            self.land(at);
        }
    }

    /// Has a jump lead here.
    pub(super) fn land(&mut self, at: usize) {
        self.subject.instructions[at].offset = (self.here() - at - 1) as i16;
    }

    pub(super) fn bounded_loop(&mut self) {
        let counter = self.number();
        self.frame.numbers.retain(|one| *one != counter);
        let rounds = 1 + self.random.below(4) as i32;
        self.put(mov_imm(counter, rounds));
        let start = self.here();
        let may = self.random.one_in(2).then(|| {
            self.put(may_goto(0));
            start
        });
        for _ in 0..=self.random.below(3) {
            match self.random.below(3) {
                0 => self.load(),
                1 => self.store(),
                _ => self.arithmetic(),
            }
        }
        self.put(op_imm(ALU64, 0x10, counter, 0, 1));
        let back = start as i64 - self.here() as i64 - 1;
        self.put(jump_imm(JMP, 0x50, counter, 0, back as i16));
        if let Some(at) = may {
            self.land(at);
        }
        self.frame.numbers.push(counter);
    }

    /// R1 to R5 hold nothing behind a call.
    pub(super) fn renew(&mut self) {
        for register in 1..=5 {
            if self.random.one_in(2) {
                let immediate = self.random.immediate();
                self.put(mov_imm(register, immediate));
            } else {
                self.put(load(DOUBLE, register, 10, -8 * i16::from(register)));
            }
        }
    }

    pub(super) fn call(&mut self) {
        let last = self.subprograms;
        if self.frame.callable_from > last {
            return;
        }
        let first = self.frame.callable_from;
        let callee = first + self.random.below((last - first + 1) as u64) as usize;
        self.calls.push((self.here(), callee));
        self.put(call_function(0));
        self.renew();
    }

    pub(super) fn callback_loop(&mut self) {
        let slot = 1 + self.random.below(SLOTS as u64) as i16;
        self.callback_loop_on(-8 * slot);
    }

    /// The callback adds to a slot of the stack.
    pub(super) fn callback_loop_on(&mut self, slot: i16) {
        let rounds = self.random.below(6) as i32;
        self.put(mov_imm(1, rounds));
        self.calls.push((self.here(), self.subprograms + 1));
        self.put_all(function(2, 0));
        self.put(mov(3, 10));
        self.put(op_imm(ALU64, 0x00, 3, 0, slot.into()));
        self.put(mov_imm(4, 0));
        self.put(call(181));
        self.renew();
    }

    pub(super) fn lookup(&mut self) {
        let number = self.number();
        self.put(op_imm(ALU64, 0x50, number, 0, 7));
        self.put(store(WORD, 10, KEY, number));
        self.key();
        let is_value = self.random.one_in(4);
        let (fd, bytes) = if is_value {
            (self.maps.value, ENTRY_BYTES.min(VALUE_BYTES))
        } else {
            (self.maps.entries, ENTRY_BYTES)
        };
        self.put_all(map(1, fd));
        match self.random.below(6) {
            // A jump in between hides the map, and the lookup is a call.
            0 => self.put(jump_imm(JMP, 0x10, 2, 1, 0)),
            1 => {
                self.put(mov(3, 1));
                self.put(mov(1, 3));
            }
            2 => self.look_up_twice(),
            // One of two maps: whose, is known when it runs.
            3 => {
                self.put(jump(JMP, 0x20, 3, 4, 2));
                self.put_all(map(1, self.maps.entries));
            }
            _ => {}
        }
        self.put(call(1));
        self.renew();
        let at = self.here();
        self.put(jump_imm(JMP, 0x10, 0, 0, 0));
        let offset = 8 * self.random.below(u64::from(bytes) / 8) as i16;
        let number = loop {
            let number = self.number();
            if number != 0 {
                break number;
            }
        };
        match self.random.below(4) {
            0 => self.put(store(DOUBLE, 0, offset, number)),
            1 => self.put(load(DOUBLE, number, 0, offset)),
            2 => self.put(atomic(DOUBLE, FETCH, 0, offset, number)),
            _ => self.put(atomic(WORD, 0xa0 | FETCH, 0, offset, number)),
        }
        self.put(load(DOUBLE, 0, 0, offset));
        self.land(at);
    }

    /// R2 is the key's address.
    pub(super) fn key(&mut self) {
        self.put(mov(2, 10));
        self.put(op_imm(ALU64, 0x00, 2, 0, KEY.into()));
    }

    /// A lookup before the lookup, with a copy of the map that outlives it; the second is a call.
    pub(super) fn look_up_twice(&mut self) {
        let numbers = self.frame.numbers.iter().copied();
        let Some(copy) = numbers.rev().find(|number| *number >= 6) else {
            return;
        };
        self.put(mov(copy, 1));
        self.put(call(1));
        self.renew();
        self.key();
        self.put(mov(1, copy));
        self.put(mov_imm(copy, 77));
        self.put(jump_imm(JMP, 0x10, 2, 1, 0));
    }
}
