//! Random programs that work on an arena.

use bpfcost_uprobe::translate::Instruction;

use crate::{
    assemble::*,
    input::Random,
    trial::{Subject, VALUE_BYTES},
};

pub(crate) const PAGE: usize = 4096;
pub(crate) const PAGES: usize = 3;
pub(crate) const TO_KERNEL: i32 = 1;
pub(crate) const TO_USER: i32 = 0x1_0000;

/// A random program. `value` and `arena` are file descriptors; the arena begins at `start`.
pub(crate) fn program(random: &mut Random, value: i32, arena: i32, start: u64) -> Subject {
    let generator = Generator {
        random,
        value,
        arena,
        start,
        code: Vec::new(),
        functions: Vec::new(),
        calls: Vec::new(),
    };
    generator.program()
}

pub(crate) fn cast(dst: u8, src: u8, how: i32) -> Instruction {
    raw(0xbf, dst, src, 1, how)
}

/// R0 to R4 hold numbers, R5 what is needed for a moment, R6 the map's value, R7 to R9 pointers into the arena.
struct Generator<'a> {
    random: &'a mut Random,
    value: i32,
    arena: i32,
    start: u64,
    code: Vec<Instruction>,
    functions: Vec<usize>,
    calls: Vec<usize>,
}

const VALUE: u8 = 6;
const WIDTHS: [(u8, i16); 4] = [(BYTE, 1), (HALF, 2), (WORD, 4), (DOUBLE, 8)];
/// Offset of an arena's pointer on the stack.
const SPILL: i16 = -64;

impl Generator<'_> {
    fn put(&mut self, instruction: Instruction) {
        self.code.push(instruction);
    }

    fn number(&mut self) -> u8 {
        self.random.below(5) as u8
    }

    fn pointer(&mut self) -> u8 {
        7 + self.random.below(3) as u8
    }

    /// An address: in the arena, at its edges, or anywhere.
    fn address(&mut self) -> u64 {
        let bytes = (PAGES * PAGE) as u64;
        let near = match self.random.below(8) {
            0 => self.random.value(),
            1 => 0,
            2 => self.random.below(16).wrapping_sub(8),
            3 => bytes.wrapping_add(self.random.below(16)).wrapping_sub(8),
            4 => (PAGE as u64)
                .wrapping_add(self.random.below(16))
                .wrapping_sub(8),
            _ => self.random.below(bytes) & !7,
        };
        match self.random.below(12) {
            0 => near,
            _ => self.start.wrapping_add(near),
        }
    }

    fn point(&mut self, pointer: u8) {
        let address = self.address();
        if self.random.one_in(3) {
            let offset = self.random.below((PAGES * PAGE) as u64) as i32;
            self.code.extend(map_value(pointer, self.arena, offset));
        } else {
            self.code.extend(wide(pointer, address));
        }
        self.put(cast(pointer, pointer, TO_KERNEL));
    }

    fn offset(&mut self) -> i16 {
        match self.random.below(6) {
            0 => self.random.value() as i16,
            1 => -8,
            2 => self.random.below(64) as i16,
            _ => 8 * self.random.below(8) as i16,
        }
    }

    fn access(&mut self) {
        let (pointer, number, offset) = (self.pointer(), self.number(), self.offset());
        self.access_of(pointer, number, offset);
    }

    fn access_of(&mut self, pointer: u8, number: u8, offset: i16) {
        let (width, _) = self.random.choose(&WIDTHS);
        match self.random.below(10) {
            0..=2 => self.put(load(width, number, pointer, offset)),
            3 if width != DOUBLE => self.put(load_signed(width, number, pointer, offset)),
            4 => {
                let immediate = self.random.immediate();
                self.put(store_imm(width, pointer, offset, immediate));
            }
            5 => {
                // Beyond the arena, Linux 6.18 leaves the register as it was, which its verifier does not know.
                self.put(mov_imm(number, 0));
                self.put(load_acquire(width, number, pointer, offset));
            }
            6 => self.put(atomic(width, STORE_RELEASE, pointer, offset, number)),
            7..=8 => {
                let width = self.random.choose(&[WORD, DOUBLE]);
                let operation = self.random.choose(&[0x00, 0x40, 0x50, 0xa0]);
                let operation = match self.random.below(8) {
                    0 => XCHG,
                    1 | 2 => CMPXCHG,
                    // The kernel has no other fetching ones for arenas on x86-64.
                    3..=5 => FETCH,
                    _ => operation,
                };
                if operation == CMPXCHG && self.random.one_in(2) {
                    self.put(load(width, 0, pointer, offset));
                }
                self.put(atomic(width, operation, pointer, offset, number));
                // What the kernel leaves in the upper half is not the same everywhere (see the other generator).
                let changed = if operation == CMPXCHG { 0 } else { number };
                if width == WORD && operation & FETCH != 0 {
                    self.put(op(ALU, 0xb0, changed, changed, 0));
                }
            }
            _ => self.put(store(width, pointer, offset, number)),
        }
    }

    fn arithmetic(&mut self, dst: u8) {
        let class = self.random.choose(&[ALU, ALU64, ALU64]);
        let bits = if class == ALU { 32 } else { 64 };
        let operation = self.random.choose(&[
            0x00, 0x00, 0x00, 0x10, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xc0,
        ]);
        let is_signed = i16::from(matches!(operation, 0x30 | 0x90) && self.random.one_in(2));
        if self.random.one_in(2) {
            let src = self.number();
            return self.put(op(class, operation, dst, src, is_signed));
        }
        let immediate = match operation {
            0x60 | 0x70 | 0xc0 => self.random.below(bits) as i32,
            0x30 | 0x90 => self.random.immediate() | 1,
            _ if self.random.one_in(2) => self.random.below(64) as i32,
            _ => self.random.immediate(),
        };
        self.put(op_imm(class, operation, dst, is_signed, immediate));
    }

    fn item(&mut self, depth: u32) {
        match self.random.below(20) {
            0..=5 => self.access(),
            6..=7 => {
                let pointer = self.pointer();
                self.arithmetic(pointer);
            }
            8..=9 => {
                let number = self.number();
                self.arithmetic(number);
            }
            10..=11 => {
                let pointer = self.pointer();
                self.point(pointer);
            }
            12 => {
                let (to, from) = (self.pointer(), self.pointer());
                self.put(mov(to, from));
            }
            // As user space has it, and what of that is a pointer again.
            13 => {
                let (number, pointer, other) = (self.number(), self.pointer(), self.pointer());
                self.put(cast(number, pointer, TO_USER));
                if self.random.one_in(2) {
                    self.put(cast(other, number, TO_KERNEL));
                }
            }
            14 => {
                let (to, from) = (self.pointer(), self.pointer());
                self.put(store(DOUBLE, 10, SPILL, from));
                if self.random.one_in(2) {
                    self.access();
                }
                self.put(load(DOUBLE, to, 10, SPILL));
            }
            // An index before the pointer.
            15 => {
                let (pointer, number) = (self.pointer(), self.number());
                self.put(mov(5, number));
                self.put(op_imm(ALU64, 0x50, 5, 0, 0x1ff8));
                self.put(op(ALU64, 0x00, 5, pointer, 0));
                let offset = self.offset();
                self.access_of(5, number, offset);
            }
            16 if depth < 2 => self.branch(depth),
            17 if depth == 0 => self.maybe_nothing(),
            18 if depth < 2 => {
                let (argument, to) = (self.pointer(), self.pointer());
                self.put(mov(1, argument));
                self.calls.push(self.code.len());
                self.put(call_function(0));
                self.put(mov(to, 0));
                self.put(mov_imm(0, 5));
                self.renew();
            }
            _ => {
                let (pointer, number) = (self.pointer(), self.number());
                self.put(mov(number, pointer));
                let offset = 8 * self.random.below(u64::from(VALUE_BYTES) / 8) as i16;
                self.put(store(DOUBLE, VALUE, offset, number));
                // A number again.
                self.put(load(DOUBLE, number, VALUE, offset));
            }
        }
    }

    /// R1 to R5 are numbers again.
    fn renew(&mut self) {
        for register in 1..5 {
            self.put(load(DOUBLE, register, VALUE, 8 * i16::from(register)));
        }
    }

    fn branch(&mut self, depth: u32) {
        let operation = self
            .random
            .choose(&[0x10, 0x20, 0x30, 0x50, 0x60, 0xa0, 0xc0]);
        let class = self.random.choose(&[JMP, JMP32]);
        let left = if self.random.one_in(2) {
            self.number()
        } else {
            self.pointer()
        };
        let at = self.code.len();
        if self.random.one_in(2) {
            let right = self.number();
            self.put(jump(class, operation, left, right, 0));
        } else {
            let immediate = self.random.immediate();
            self.put(jump_imm(class, operation, left, immediate, 0));
        }
        for _ in 0..1 + self.random.below(4) {
            self.item(depth + 1);
        }
        self.code[at].offset = (self.code.len() - at - 1) as i16;
    }

    /// A pointer that is nothing on one path.
    fn maybe_nothing(&mut self) {
        let (pointer, number) = (self.pointer(), self.number());
        let offset = self.offset();
        self.put(mov(5, pointer));
        self.put(jump_imm(JMP, 0x20, number, 1 << 16, 1));
        self.put(mov_imm(5, 0));
        let at = self.code.len();
        self.put(jump_imm(JMP, 0x10, 5, 0, 0));
        self.access_of(5, number, offset);
        self.code[at].offset = (self.code.len() - at - 1) as i16;
    }

    fn program(mut self) -> Subject {
        self.functions.push(0);
        self.put(mov(5, 1));
        self.code.extend(map_value(VALUE, self.value, 0));
        for register in 0..5 {
            self.put(load(DOUBLE, register, 5, 8 * i16::from(register)));
        }
        for pointer in 7..10 {
            self.point(pointer);
        }
        // The kernel wants the function to be called, and knows of the arena from here.
        self.code.extend(map_value(5, self.arena, 8));
        self.put(cast(1, 5, TO_KERNEL));
        self.calls.push(self.code.len());
        self.put(call_function(0));
        self.put(mov_imm(0, 7));
        self.renew();
        for _ in 0..8 + self.random.below(24) {
            self.item(0);
        }
        for register in (0..5).chain(7..10) {
            self.put(store(
                DOUBLE,
                VALUE,
                128 + 8 * i16::from(register),
                register,
            ));
        }
        self.put(mov_imm(0, 0));
        self.put(exit());
        let function = self.code.len();
        self.functions.push(function);
        // A pointer and a number: it works on the one, and returns it.
        for pointer in 7..10 {
            self.put(mov(pointer, 1));
        }
        self.code.extend(map_value(VALUE, self.value, 0));
        self.put(mov_imm(0, 3));
        self.renew();
        for _ in 0..2 + self.random.below(6) {
            self.item(2);
        }
        self.put(mov(0, 7));
        self.put(exit());
        for at in self.calls {
            self.code[at].immediate = (function - at - 1) as i32;
        }
        Subject {
            instructions: self.code,
            functions: self.functions,
        }
    }
}
