//! Random programs that the verifier accepts, nearly always.
//!
//! Two of R6 to R9 hold the context and the map's value; the other registers hold numbers at every point, the stack's
//! first slots too.
//!
//! Two faults of the kernel (seen in 6.18) are kept out, as programs that meet them have no right result to compare:
//!
//! - The verifier thinks that it knows a stack slot that a fetching atomic has changed. These work on map memory alone.
//! - A 32-bit compare-and-exchange must clear the upper half of R0. x86 does not where the exchange succeeds, and the
//!   verifier adds an instruction for it only if it sees a 64-bit read of R0; not if it stops at a state that it has met
//!   before, and the read is behind that. So a 32-bit move of R0 follows each of these.

pub(crate) mod arena;
mod constant;
mod control;
mod memory;
mod tail;

use bpfcost_uprobe::translate::Instruction;

use crate::{assemble::*, input::Random, trial::Subject};

/// Slots of 8 bytes on the stack that always hold numbers.
const SLOTS: i16 = 8;
/// The slot of keys.
const KEY: i16 = -8 * (SLOTS + 1);
/// Offset in the context that takes all registers in the end.
const REGISTERS_AT: i16 = 160;

const ALU_OPERATIONS: [u8; 12] = [
    0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0,
];
const JUMPS: [u8; 11] = [
    0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0,
];
const WIDTHS: [(u8, i16); 4] = [(BYTE, 1), (HALF, 2), (WORD, 4), (DOUBLE, 8)];

/// The file descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    pub(crate) value: i32,
    pub(crate) entries: i32,
    /// Frozen.
    pub(crate) constants: i32,
}

pub(crate) fn program(random: &mut Random, maps: Maps) -> Subject {
    generate(random, maps, None)
}

/// A random program that makes tail calls: its context is 12 words, which it only reads.
pub(crate) fn tail_caller(random: &mut Random, maps: Maps, array: i32) -> Subject {
    generate(random, maps, Some(array))
}

fn generate(random: &mut Random, maps: Maps, array: Option<i32>) -> Subject {
    let subprograms = random.choose(&[0, 0, 1, 2]);
    let has_callback = random.one_in(3);
    let has_tail_subprogram = array.is_some() && random.one_in(2);
    let has_constants = random.one_in(2);
    let mut generator = Generator {
        random,
        maps,
        subject: Subject::default(),
        calls: Vec::new(),
        subprograms,
        has_callback,
        array,
        has_tail_subprogram,
        has_constants,
        frame: Frame::default(),
    };
    generator.main();
    for index in 0..subprograms {
        generator.subprogram(index + 1);
    }
    if has_callback {
        generator.callback();
    }
    if has_tail_subprogram {
        generator.tail_subprogram();
    }
    generator.link()
}

/// The function that is written.
#[derive(Clone, Debug, Default)]
struct Frame {
    context: Option<u8>,
    value: u8,
    /// Registers that hold numbers.
    numbers: Vec<u8>,
    /// Which functions it may call: those from this number on.
    callable_from: usize,
}

struct Generator<'a> {
    random: &'a mut Random,
    maps: Maps,
    subject: Subject,
    /// Instructions that refer to a function, and to which.
    calls: Vec<(usize, usize)>,
    subprograms: usize,
    has_callback: bool,
    /// The array of programs for tail calls.
    array: Option<i32>,
    /// True if a subprogram makes some.
    has_tail_subprogram: bool,
    /// True if it reads constants.
    has_constants: bool,
    frame: Frame,
}

impl Generator<'_> {
    fn put(&mut self, instruction: Instruction) {
        self.subject.instructions.push(instruction);
    }

    fn put_all(&mut self, instructions: [Instruction; 2]) {
        self.subject.instructions.extend(instructions);
    }

    fn here(&self) -> usize {
        self.subject.instructions.len()
    }

    fn number(&mut self) -> u8 {
        self.random.choose(&self.frame.numbers)
    }

    fn main(&mut self) {
        self.subject.functions.push(0);
        let context = 6 + self.random.below(4) as u8;
        let value = 6 + (u64::from(context) - 5 + self.random.below(3)) as u8 % 4;
        self.frame = Frame {
            context: Some(context),
            value,
            numbers: (0..10)
                .filter(|one| ![context, value].contains(one))
                .collect(),
            callable_from: 1,
        };
        self.put(mov(context, 1));
        self.put_all(map_value(value, self.maps.value, 0));
        for number in self.frame.numbers.clone() {
            self.put(load(DOUBLE, number, context, 8 * i16::from(number)));
        }
        self.fill_stack();
        // The verifier wants each function to be called.
        for callee in 1..=self.subprograms {
            self.calls.push((self.here(), callee));
            self.put(call_function(0));
            self.renew();
        }
        if self.has_callback {
            self.callback_loop();
        }
        if self.has_tail_subprogram {
            self.call_tail_subprogram();
        }
        self.tail_calls();
        let items = 6 + self.random.below(24);
        self.items(items, 0);
        // The map's value takes them where the context can't be written.
        let (to, at) = match self.array {
            Some(_) => (value, 0),
            None => (context, REGISTERS_AT),
        };
        for number in self.frame.numbers.clone() {
            self.put(store(DOUBLE, to, at + 8 * i16::from(number), number));
        }
        // What is left on the stack counts too.
        for slot in 1..=SLOTS {
            self.put(load(DOUBLE, 1, 10, -8 * slot));
            self.put(op(ALU64, 0xa0, 0, 1, 0));
            self.put(op_imm(ALU64, 0x20, 0, 0, 31));
        }
        self.put(store(DOUBLE, to, at + 80, 0));
        self.put(exit());
    }

    fn subprogram(&mut self, index: usize) {
        self.subject.functions.push(self.here());
        let value = 6 + self.random.below(4) as u8;
        self.frame = Frame {
            context: None,
            value,
            numbers: (0..10).filter(|one| *one != value).collect(),
            callable_from: index + 1,
        };
        self.put(mov(0, 1));
        self.put_all(map_value(value, self.maps.value, 0));
        for number in 6..10 {
            if number != value {
                let source = 1 + self.random.below(5) as u8;
                self.put(mov(number, source));
            }
        }
        self.fill_stack();
        let items = 2 + self.random.below(8);
        self.items(items, 1);
        self.put(exit());
    }

    /// A callback of `bpf_loop`: R1 is the round, R2 the caller's stack.
    fn callback(&mut self) {
        self.subject.functions.push(self.here());
        self.frame = Frame {
            context: None,
            value: 9,
            numbers: (0..9).collect(),
            callable_from: usize::MAX,
        };
        self.put(load(DOUBLE, 0, 2, 0));
        self.put(op(ALU64, 0x00, 0, 1, 0));
        self.put(store(DOUBLE, 2, 0, 0));
        self.put_all(map_value(9, self.maps.value, 0));
        for number in 2..9 {
            let source = self.random.below(2) as u8;
            self.put(mov(number, source));
        }
        self.fill_stack();
        let items = 1 + self.random.below(5);
        self.items(items, 2);
        // Only 0 and 1 are results of callbacks.
        self.put(op_imm(ALU64, 0x50, 0, 0, 1));
        self.put(exit());
    }

    fn fill_stack(&mut self) {
        for slot in 1..=SLOTS {
            let number = self.number();
            self.put(store(DOUBLE, 10, -8 * slot, number));
        }
    }

    /// `depth` counts what this is inside of, and limits what the verifier has to try.
    fn items(&mut self, count: u64, depth: u32) {
        for _ in 0..count {
            self.item(depth);
        }
    }

    fn item(&mut self, depth: u32) {
        match self.random.below(40) {
            0..=11 => self.arithmetic(),
            12..=14 => self.load(),
            15..=17 => self.store(),
            18..=19 => self.atomic(),
            20 => self.variable_access(),
            21 => {
                let (dst, value) = (self.number(), self.random.value());
                self.put_all(wide(dst, value));
            }
            22..=25 if depth < 2 => self.branch(depth),
            26 if depth < 1 => self.bounded_loop(),
            27 if depth < 2 => self.call(),
            28 if depth < 1 && self.has_callback => self.callback_loop(),
            29 if depth < 2 => self.lookup(),
            30 => self.pointer_in_number(),
            31 => self.deep_stack(),
            32 if depth < 2 => self.tail_calls(),
            33..=34 if self.has_constants => drop(self.constant()),
            35..=36 if depth < 2 && self.has_constants => self.constant_branch(depth),
            37..=38 if depth < 2 && self.has_constants => self.dead_code(depth),
            _ => self.arithmetic(),
        }
    }

    fn arithmetic(&mut self) {
        let class = self.random.choose(&[ALU, ALU64]);
        let bits = if class == ALU { 32 } else { 64 };
        let (dst, src) = (self.number(), self.number());
        match self.random.below(12) {
            0 => return self.put(op_imm(class, 0x80, dst, 0, 0)),
            1 => {
                let width = self.random.choose(&[16, 32, 64]);
                // bswap, or a conversion to little or big endian.
                let code = self.random.choose(&[0xd7, 0xd4, 0xdc]);
                return self.put(raw(code, dst, 0, 0, width));
            }
            2 => {
                let extend = self.random.choose(&[8, 16, 32]);
                let class = if extend == 32 { ALU64 } else { class };
                return self.put(op(class, 0xb0, dst, src, extend));
            }
            _ => {}
        }
        let operation = self.random.choose(&ALU_OPERATIONS);
        let is_division = matches!(operation, 0x30 | 0x90);
        let is_signed = i16::from(is_division && self.random.one_in(2));
        if self.random.one_in(2) {
            return self.put(op(class, operation, dst, src, is_signed));
        }
        let immediate = match operation {
            0x60 | 0x70 | 0xc0 => self.random.below(bits) as i32,
            0x30 | 0x90 => match self.random.immediate() {
                0 => -1,
                other => other,
            },
            _ => self.random.immediate(),
        };
        self.put(op_imm(class, operation, dst, is_signed, immediate));
    }

    fn link(mut self) -> Subject {
        let functions = self.subject.functions.clone();
        for (at, callee) in self.calls {
            let distance = functions[callee] as i64 - at as i64 - 1;
            self.subject.instructions[at].immediate = distance as i32;
        }
        self.subject
    }
}
