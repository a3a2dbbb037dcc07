//! Cases in which the kernel can't be asked: alignment and distances of calls, and where it is wrong.

use bpfcost_uprobe::translate::{
    Backend as _, Error, HelperTable, MapLayout, MapPlace, Program, Translator,
};

use crate::{assemble::*, machine::Machine};

/// A helper that returns how far the stack is from where System V wants it at a call.
#[unsafe(naked)]
extern "C" fn misalignment() -> u64 {
    std::arch::naked_asm!("lea rax, [rsp + 8]", "and rax, 15", "ret")
}

/// The helper's id: one that the blob has, replaced here.
const PRANDOM: i32 = 7;

struct Nothing;

impl MapLayout for Nothing {
    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        panic!("there is no map {fd}");
    }
}

/// Functions that save nothing to four registers, with and without a frame, a counter, a caller and a loop.
#[test]
fn helpers_find_the_stack_aligned() {
    let mut machine = Machine::new().expect("memory can be had");
    let mut table = HelperTable::new();
    table.insert(PRANDOM as u32, misalignment as *const () as u64);
    for saved in 0..=4u8 {
        for depth in [0i16, 4, 8, 12, 16, 24, 512] {
            for has_counter in [false, true] {
                let mut body: Vec<_> = (6..6 + saved)
                    .map(|register| mov_imm(register, 1))
                    .collect();
                if depth > 0 {
                    body.push(store_imm(WORD, 10, -depth, 0));
                }
                if has_counter {
                    body.push(may_goto(0));
                }
                body.push(call(PRANDOM));
                body.push(exit());
                // By itself, from another function, and from a loop, which ends after the first round that is not 0.
                let alone = body.clone();
                let mut called = vec![mov_imm(6, 0), call_function(1), exit()];
                called.extend(&body);
                let mut looped = vec![mov_imm(1, 3)];
                looped.extend(function(2, 6));
                looped.extend([mov_imm(3, 0), mov_imm(4, 0), call(181)]);
                // Three rounds, all of which returned 0.
                looped.extend([op_imm(ALU64, 0x10, 0, 0, 3), exit()]);
                looped.extend(&body);
                for instructions in [alone, called, looped] {
                    let program = Program {
                        instructions: &instructions,
                        fd: -1,
                    };
                    let translator = Translator::of_this_machine();
                    let code = translator.translate(&program, machine.address(), &table, &Nothing);
                    machine.put(&code.expect("all of it is supported").bytes);
                    let outcome = machine.run(&mut [0; 8], false);
                    assert_eq!(outcome.result, 0, "{instructions:?}");
                    assert!(outcome.kept_registers, "{instructions:?}");
                }
            }
        }
    }
}

/// Addresses that 32 bits reach from the code, and those beyond: both ways to load and to call.
#[test]
fn code_runs_near_its_helpers_and_far_from_them() {
    let machine = Machine::new().expect("memory can be had");
    let program = Program {
        instructions: &[call(PRANDOM), exit()],
        fd: -1,
    };
    let length = |helper: u64| {
        let mut table = HelperTable::new();
        table.insert(PRANDOM as u32, helper);
        let translator = Translator::of_this_machine();
        let code = translator.translate(&program, machine.address(), &table, &Nothing);
        code.expect("all of it is supported").bytes.len()
    };
    assert_eq!(
        length(machine.address() + (3 << 30)) - length(machine.address() + (1 << 30)),
        8
    );
}

/// A 32-bit compare-and-exchange that succeeds, with a branch around it. The verifier of 6.18 sees the 64-bit read of R0
/// only on the path that has none, and the kernel leaves R0 as it was; BPF says that R0 gets the old value of 32 bits.
#[test]
fn an_exchange_clears_the_upper_half_of_r0() {
    let mut memory = [u64::MAX, 0, u64::MAX];
    let mut instructions = vec![
        load(DOUBLE, 0, 1, 0),
        load(DOUBLE, 2, 1, 8),
        mov_imm(3, 5),
        jump_imm(JMP, 0x50, 2, 0, 1),
        atomic(WORD, CMPXCHG, 1, 16, 3),
    ];
    instructions.extend([store(DOUBLE, 1, 0, 0), exit()]);
    let program = Program {
        instructions: &instructions,
        fd: -1,
    };
    let mut machine = Machine::new().expect("memory can be had");
    let translator = Translator::of_this_machine();
    let code = translator.translate(&program, machine.address(), &HelperTable::new(), &Nothing);
    machine.put(&code.expect("all of it is supported").bytes);
    let mut bytes: Vec<u8> = memory.iter().flat_map(|word| word.to_le_bytes()).collect();
    let outcome = machine.run(&mut bytes, false);
    for (word, chunk) in memory.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("8 bytes"));
    }
    assert_eq!(outcome.result, 0xffff_ffff);
    assert_eq!(memory, [0xffff_ffff, 0, 0xffff_ffff_0000_0005]);
}
