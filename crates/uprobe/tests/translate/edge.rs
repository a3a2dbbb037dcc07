//! Instructions one by one, at the limits of their operands: every operation with every pair of the registers that
//! its code treats apart.

use bpfcost_uprobe::translate::{Instruction, Translator};

use crate::{
    assemble::*,
    require,
    trial::{Bench, CONTEXT_BYTES, ENTRIES, ENTRY_BYTES, Failure, Input, Subject, VALUE_BYTES},
};

/// Both operands of an operation: all pairs are tried.
const VALUES: [u64; 22] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    65,
    0x7f,
    0x80,
    0x7fff,
    0x8000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x0123_4567_89ab_cdef,
    1 << 63,
    (1 << 63) - 1,
    u64::MAX,
];

/// Registers that translations treat apart: R0 is RAX, R3 is RDX, R4 is RCX; R5 and R8 need a prefix; R1 and R2 have
/// byte forms of their own.
const REGISTERS: [u8; 7] = [0, 1, 2, 3, 4, 5, 8];

const CONTEXT: u8 = 9;
/// Each program writes its results behind its operands.
const OPERANDS: i16 = 16;

fn inputs() -> Vec<Input> {
    let pairs = VALUES
        .iter()
        .flat_map(|left| VALUES.iter().map(move |right| (left, right)));
    pairs.map(|(left, right)| input(*left, *right)).collect()
}

fn input(left: u64, right: u64) -> Input {
    let mut context = vec![0; CONTEXT_BYTES];
    context[..8].copy_from_slice(&left.to_le_bytes());
    context[8..16].copy_from_slice(&right.to_le_bytes());
    let pattern = |bytes: u32| (0..bytes).map(|byte| (byte * 37 + 0x81) as u8).collect();
    Input {
        context,
        value: pattern(VALUE_BYTES),
        entries: pattern(ENTRY_BYTES * ENTRIES),
    }
}

/// A program that loads both operands anew for each of these, with all other registers known, and writes all results.
fn each(operations: &[(u8, u8, Instruction)]) -> Subject {
    let mut instructions = vec![mov(CONTEXT, 1)];
    let mut at = OPERANDS;
    for &(dst, src, instruction) in operations {
        for other in 0..9 {
            instructions.push(mov_imm(other, 0x1100 + i32::from(other)));
        }
        instructions.push(load(DOUBLE, src, CONTEXT, 8));
        instructions.push(load(DOUBLE, dst, CONTEXT, 0));
        instructions.push(instruction);
        for register in [dst, src, 0, 3, 4] {
            // Results are mixed, so that all fit.
            instructions.push(load(DOUBLE, 6, CONTEXT, at));
            instructions.push(op_imm(ALU64, 0x20, 6, 0, 0x1f3));
            instructions.push(op(ALU64, 0xa0, 6, register, 0));
            instructions.push(store(DOUBLE, CONTEXT, at, 6));
        }
        at += 8;
        if i32::from(at) + 8 > CONTEXT_BYTES as i32 {
            at = OPERANDS;
        }
    }
    instructions.push(mov_imm(0, 0));
    instructions.push(exit());
    Subject {
        instructions,
        functions: vec![0],
    }
}

fn pairs() -> impl Iterator<Item = (u8, u8)> {
    REGISTERS
        .iter()
        .flat_map(|dst| REGISTERS.iter().map(|src| (*dst, *src)))
}

/// Runs the programs with both forms of shifts.
#[track_caller]
fn agree(name: &str, subjects: &[Subject], inputs: &[Input]) {
    if !require::host() {
        return;
    }
    let mut bench = Bench::new().expect("maps and memory can be made");
    for subject in subjects {
        for has_bmi2 in [false, Translator::of_this_machine().has_bmi2] {
            let translator = Translator { has_bmi2 };
            match bench.compare(&translator, subject, inputs) {
                Ok(()) => {}
                Err(Failure::Different(how)) => panic!("{name}: {how}\n{subject:?}"),
                Err(other) => panic!("{name}: {other:?}"),
            }
        }
    }
}

#[test]
fn arithmetic_of_registers() {
    let mut operations = Vec::new();
    for class in [ALU, ALU64] {
        for operation in [0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0] {
            operations
                .extend(pairs().map(|(dst, src)| (dst, src, op(class, operation, dst, src, 0))));
        }
        operations.extend(pairs().map(|(dst, src)| (dst, src, op_imm(class, 0x80, dst, 0, 0))));
    }
    let subjects: Vec<_> = operations.chunks(100).map(each).collect();
    agree("arithmetic", &subjects, &inputs());
}

#[test]
fn divisions_by_registers() {
    let mut operations = Vec::new();
    for (class, operation, sign) in divisions() {
        operations
            .extend(pairs().map(|(dst, src)| (dst, src, op(class, operation, dst, src, sign))));
    }
    let subjects: Vec<_> = operations.chunks(100).map(each).collect();
    agree("divisions", &subjects, &inputs());
}

fn divisions() -> impl Iterator<Item = (u8, u8, i16)> {
    let classes = [ALU, ALU64].into_iter();
    let operations = classes.flat_map(|class| [0x30, 0x90].map(|operation| (class, operation)));
    operations.flat_map(|(class, operation)| [0, 1].map(|sign| (class, operation, sign)))
}

#[test]
fn arithmetic_with_numbers() {
    let numbers = [
        1,
        2,
        -1,
        -2,
        127,
        -128,
        128,
        -129,
        0x7fff_ffff,
        i32::MIN,
        0x1234_5678,
    ];
    let mut operations = Vec::new();
    for number in numbers {
        for class in [ALU, ALU64] {
            for operation in [0x00, 0x10, 0x20, 0x40, 0x50, 0xa0, 0xb0] {
                operations.extend(
                    REGISTERS.map(|dst| (dst, 7, op_imm(class, operation, dst, 0, number))),
                );
            }
        }
        for (class, operation, sign) in divisions() {
            operations
                .extend(REGISTERS.map(|dst| (dst, 7, op_imm(class, operation, dst, sign, number))));
        }
    }
    for (class, bits) in [(ALU, 32), (ALU64, 64)] {
        for operation in [0x60, 0x70, 0xc0] {
            for count in [0, 1, bits / 2, bits - 1] {
                operations
                    .extend(REGISTERS.map(|dst| (dst, 7, op_imm(class, operation, dst, 0, count))));
            }
        }
        operations.push((2, 7, op_imm(class, 0xb0, 2, 0, 0)));
    }
    let subjects: Vec<_> = operations.chunks(200).map(each).collect();
    let inputs: Vec<_> = VALUES.iter().map(|left| input(*left, 3)).collect();
    agree("numbers", &subjects, &inputs);
}

#[test]
fn extensions_and_byte_orders() {
    let mut operations = Vec::new();
    for (class, bits) in [(ALU, 8), (ALU, 16), (ALU64, 8), (ALU64, 16), (ALU64, 32)] {
        operations.extend(pairs().map(|(dst, src)| (dst, src, op(class, 0xb0, dst, src, bits))));
    }
    for code in [0xd7, 0xd4, 0xdc] {
        for bits in [16, 32, 64] {
            operations.extend(REGISTERS.map(|dst| (dst, 7, raw(code, dst, 0, 0, bits))));
        }
    }
    let subjects: Vec<_> = operations.chunks(200).map(each).collect();
    let inputs: Vec<_> = VALUES.iter().map(|value| input(!value, *value)).collect();
    agree("extensions", &subjects, &inputs);
}

#[test]
fn comparisons() {
    let mut subjects = Vec::new();
    for class in [JMP, JMP32] {
        for operation in [
            0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0,
        ] {
            let mut instructions = vec![
                load(DOUBLE, 2, 1, 0),
                load(DOUBLE, 3, 1, 8),
                mov_imm(0, 0),
                jump(class, operation, 2, 3, 1),
                op_imm(ALU64, 0x40, 0, 0, 1),
            ];
            for (index, number) in [0, 1, -1, 127, 128, i32::MAX, i32::MIN]
                .into_iter()
                .enumerate()
            {
                instructions.push(jump_imm(class, operation, 2, number, 1));
                instructions.push(op_imm(ALU64, 0x40, 0, 0, 2 << index));
            }
            instructions.push(exit());
            subjects.push(Subject {
                instructions,
                functions: vec![0],
            });
        }
    }
    agree("comparisons", &subjects, &inputs());
}

#[test]
fn atomic_operations() {
    const VALUE: u8 = 7;
    let bench = require::host().then(|| Bench::new().expect("maps and memory can be made"));
    let Some(mut bench) = bench else { return };
    for width in [WORD, DOUBLE] {
        for operation in [
            0x00, 0x40, 0x50, 0xa0, 0x01, 0x41, 0x51, 0xa1, XCHG, CMPXCHG,
        ] {
            for (base, src) in pairs().filter(|(base, src)| base != src) {
                let is_compared = operation == CMPXCHG;
                if is_compared && base == 0 {
                    continue;
                }
                let mut instructions = vec![mov(CONTEXT, 1)];
                instructions.extend(map_value(VALUE, bench.value.fd(), 0));
                // The compared number is first another one, then the right one.
                for is_equal in [false, true] {
                    instructions.push(load(DOUBLE, src, CONTEXT, 0));
                    instructions.push(store(DOUBLE, VALUE, 8, src));
                    instructions.push(load(DOUBLE, src, CONTEXT, 8));
                    instructions.push(mov(base, VALUE));
                    if is_compared {
                        instructions.push(load(DOUBLE, 0, CONTEXT, if is_equal { 0 } else { 8 }));
                    }
                    instructions.push(atomic(width, operation, base, 8, src));
                    let at = OPERANDS + 16 * i16::from(is_equal);
                    instructions.push(store(DOUBLE, CONTEXT, at, src));
                    if base != 0 && (is_compared || src == 0) {
                        instructions.push(store(DOUBLE, CONTEXT, at + 8, 0));
                    }
                    // The base is what it was.
                    instructions.push(load(DOUBLE, 6, base, 8));
                    instructions.push(store(DOUBLE, CONTEXT, at + 32, 6));
                }
                instructions.push(mov_imm(0, 0));
                instructions.push(exit());
                let subject = Subject {
                    instructions,
                    functions: vec![0],
                };
                let inputs: Vec<_> = VALUES
                    .iter()
                    .map(|left| input(*left, 0x8000_0000_ffff_fff5))
                    .collect();
                let translator = Translator::of_this_machine();
                match bench.compare(&translator, &subject, &inputs) {
                    Ok(()) => {}
                    Err(failure) => panic!("{operation:#x} [r{base}], r{src}: {failure:?}"),
                }
            }
        }
    }
}

/// Jumps over 1 to 400 instructions, forward and back: short ones, near ones, and those at the limit between.
#[test]
fn jumps_of_all_lengths() {
    let mut subjects = Vec::new();
    for length in (1..48).chain([100, 126, 127, 128, 129, 200, 400]) {
        for filler in [mov(2, 3), op_imm(ALU64, 0x00, 2, 0, 0x1234_5678)] {
            let filled = || std::iter::repeat_n(filler, length);
            let far = length as i32;
            let mut instructions = vec![mov_imm(0, 0), mov_imm(2, 5), mov_imm(3, 2), mov_imm(4, 4)];
            instructions.push(load(DOUBLE, 5, 1, 0));
            // Over the filler, both ways; then back to its start until R4 is 0.
            instructions.push(jump_imm(JMP, 0x10, 5, 1, length as i16 + 1));
            instructions.extend(filled());
            instructions.push(op_imm(ALU64, 0x00, 0, 0, 1));
            instructions.push(jump_imm(JMP, 0x50, 5, 2, 1));
            instructions.push(always_far(far));
            instructions.extend(filled());
            instructions.push(op(ALU64, 0x00, 0, 2, 0));
            instructions.push(op_imm(ALU64, 0x10, 4, 0, 1));
            instructions.push(jump_imm(JMP, 0x50, 4, 0, -(length as i16) - 3));
            instructions.push(exit());
            subjects.push(Subject {
                instructions,
                functions: vec![0],
            });
        }
    }
    let inputs: Vec<_> = [0, 1, 2].iter().map(|left| input(*left, 0)).collect();
    agree("jumps", &subjects, &inputs);
}

#[test]
fn constants_of_64_bits() {
    let subjects: Vec<_> = VALUES
        .iter()
        .flat_map(|value| REGISTERS.map(|register| (*value, register)))
        .map(|(value, register)| {
            let mut instructions = vec![mov(CONTEXT, 1)];
            instructions.extend(wide(register, value));
            instructions.push(store(DOUBLE, CONTEXT, 16, register));
            instructions.push(mov_imm(0, -1));
            instructions.push(exit());
            Subject {
                instructions,
                functions: vec![0],
            }
        })
        .collect();
    agree("constants", &subjects, &[input(0, 0)]);
}

/// `may_goto` at the head of a loop that ends by itself, and once more behind it.
#[test]
fn loops_that_may_end() {
    let subject = Subject {
        instructions: vec![
            mov_imm(0, 0),
            mov_imm(2, 1000),
            may_goto(4),
            op_imm(ALU64, 0x00, 0, 0, 3),
            op_imm(ALU64, 0x10, 2, 0, 1),
            jump_imm(JMP, 0x10, 2, 0, 1),
            always(-5),
            may_goto(1),
            op_imm(ALU64, 0x00, 0, 0, 1),
            exit(),
        ],
        functions: vec![0],
    };
    agree("may_goto", &[subject], &[input(0, 0)]);
}

/// Flags that `bpf_loop` does not know, more rounds than it does, and a callback that ends it.
#[test]
fn loops_with_callbacks() {
    let subjects = [
        (0, 0, 10),
        (0, 0, 3),
        (5, 0, 10),
        ((8 << 20) + 1, 0, 10),
        (8 << 20, 0, 10),
        (5, 1, 10),
    ]
    .map(|(rounds, flags, last)| {
        let mut instructions = vec![store_imm(DOUBLE, 10, -8, 0), mov_imm(1, rounds)];
        instructions.extend(function(2, 7));
        instructions.push(mov(3, 10));
        instructions.push(op_imm(ALU64, 0x00, 3, 0, -8));
        instructions.push(mov_imm(4, flags));
        instructions.push(call(181));
        instructions.push(load(DOUBLE, 1, 10, -8));
        instructions.push(op(ALU64, 0x00, 0, 1, 0));
        instructions.push(exit());
        let callback = instructions.len();
        instructions[2].immediate = callback as i32 - 3;
        instructions.push(load(DOUBLE, 0, 2, 0));
        instructions.push(op_imm(ALU64, 0x00, 0, 0, 100));
        instructions.push(store(DOUBLE, 2, 0, 0));
        instructions.push(mov_imm(0, 0));
        instructions.push(jump_imm(JMP, 0x50, 1, last, 1));
        instructions.push(mov_imm(0, 1));
        instructions.push(exit());
        Subject {
            instructions,
            functions: vec![0, callback],
        }
    });
    agree("bpf_loop", &subjects, &[input(0, 0)]);
}
