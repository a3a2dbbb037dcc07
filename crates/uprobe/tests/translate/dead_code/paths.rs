//! Paths through programs: jumps, loops, functions, and what they leave of a program.

use bpfcost_uprobe::translate::{
    Backend as _, Error, HelperTable, Instruction, MachineCode, MapLayout, MapPlace, Program,
    Translator,
};

use super::{FROZEN, OTHER, UNKNOWN_HELPER, constant, constants, join, left, reduced};
use crate::{assemble::*, input::Random, machine::Machine};

/// A map with constants, and none that has a place.
struct Layout(Vec<u8>);

impl MapLayout for Layout {
    fn place(&self, fd: i32) -> Result<MapPlace, Error> {
        if fd != FROZEN {
            return Err(Error::UnsupportedMap {
                map: "groups".to_owned(),
                kind: "cgroup_array".to_owned(),
            });
        }
        Ok(MapPlace {
            handle: 0,
            array: Some(bpfcost_uprobe::translate::ArrayPlace {
                values: self.0.as_ptr() as u64,
                value_size: self.0.len() as u32,
                entries: 1,
            }),
            arena: None,
        })
    }

    fn constants(&self, fd: i32) -> Option<Vec<u8>> {
        constants(fd)
    }
}

fn translate(program: &[Instruction], at: u64) -> Result<MachineCode, Error> {
    let program = Program {
        instructions: program,
        fd: -1,
    };
    let layout = Layout(constants(FROZEN).expect("it has some"));
    Translator::of_this_machine().translate(&program, at, &HelperTable::new(), &layout)
}

/// Translates a program, and runs it.
fn result(program: &[Instruction]) -> u64 {
    let mut machine = Machine::new().expect("memory can be had");
    let code = translate(program, machine.address());
    machine.put(&code.expect("what is left is supported").bytes);
    let outcome = machine.run(&mut [0; 64], false);
    assert!(outcome.kept_registers);
    outcome.result
}

#[test]
fn a_dead_branch_is_not_translated() {
    let dead = [
        vec![call(UNKNOWN_HELPER)],
        vec![raw(0x85, 0, 2, 0, 77)],
        map(1, OTHER).to_vec(),
        map_value(1, OTHER, 4).to_vec(),
        vec![raw(0x18, 1, 3, 0, 99), raw(0, 0, 0, 0, 0)],
        vec![raw(0x20, 0, 0, 0, 0)],
    ];
    for dead in dead {
        let skip = dead.len() as i16;
        let refused = join(&[&constant(WORD, 1, 0), &[mov_imm(0, 3)], &dead, &[exit()]]);
        assert!(translate(&refused, 0).is_err(), "{dead:?}");
        let branch = jump_imm(JMP, 0x10, 1, 1, skip);
        let before = [&constant(WORD, 1, 0)[..], &[mov_imm(0, 3), branch]].concat();
        let program = join(&[&before, &dead, &[exit()]]);
        assert_eq!(result(&program), 3, "{dead:?}");
        // Not by another constant.
        let branch = jump_imm(JMP, 0x10, 1, 2, skip);
        let before = [&constant(WORD, 1, 0)[..], &[mov_imm(0, 3), branch]].concat();
        let program = join(&[&before, &dead, &[exit()]]);
        let index = before.len();
        let error = translate(&program, 0)
            .expect_err("it is reached")
            .to_string();
        let named =
            error.starts_with(&format!("instruction {index}: ")) || error.contains("groups");
        assert!(named, "{error}");
    }
}

/// The result: jumps over nothing are nothing too, and there is no machine code for them.
#[test]
fn jumps_over_dead_code_vanish() {
    let program = join(&[
        &constant(WORD, 1, 0),
        &[
            jump_imm(JMP, 0x50, 1, 0, 3),
            call(UNKNOWN_HELPER),
            exit(),
            exit(),
        ],
        &[mov_imm(0, 2), exit()],
    ]);
    assert_eq!(left(&program), [0, 1, 2, 7, 8]);
    assert_eq!(result(&program), 2);
    let plain = join(&[&constant(WORD, 1, 0), &[mov_imm(0, 2), exit()]]);
    let bytes = |program: &[Instruction]| {
        let code = translate(program, 0).expect("supported");
        code.bytes.len()
    };
    assert_eq!(bytes(&program), bytes(&plain));
    // A jump over code that another path leads to stays.
    let program = join(&[
        &constant(WORD, 1, 0),
        &[jump_imm(JMP, 0x10, 2, 0, 1), jump_imm(JMP, 0x10, 1, 1, 1)],
        &[mov_imm(0, 2), exit()],
    ]);
    assert_eq!(reduced(&program)[4], always(1));
}

#[test]
fn code_behind_an_exit_is_dead_without_constants() {
    let mut program = vec![mov_imm(0, 4), exit(), call(UNKNOWN_HELPER)];
    program.extend(map(1, OTHER));
    program.extend([jump_imm(JMP, 0x10, 1, 0, -2), exit()]);
    assert_eq!(left(&program), [0, 1]);
    assert_eq!(result(&program), 4);
    // Behind a jump, and in a circle of its own.
    let program = [
        always(2),
        call(UNKNOWN_HELPER),
        always(-2),
        mov_imm(0, 4),
        exit(),
    ];
    assert_eq!(left(&program), [3, 4]);
    assert_eq!(result(&program), 4);
}

#[test]
fn wide_jumps_are_followed() {
    let program = [
        mov_imm(0, 6),
        always_far(2),
        call(UNKNOWN_HELPER),
        exit(),
        jump_imm(JMP, 0x10, 0, 6, 1),
        always_far(-4),
        exit(),
    ];
    assert_eq!(left(&program), [0, 6]);
    assert_eq!(result(&program), 6);
    // Where it is reached, it leads back.
    let mut program = program;
    program[0] = load(WORD, 0, 1, 0);
    assert_eq!(left(&program), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn may_goto_goes_both_ways() {
    let program = [
        mov_imm(0, 0),
        may_goto(2),
        op_imm(ALU64, 0x00, 0, 0, 1),
        always(-3),
        exit(),
    ];
    assert_eq!(left(&program), [0, 1, 2, 3, 4]);
    // The sum is unknown behind it.
    let program = [
        mov_imm(0, 0),
        may_goto(2),
        op_imm(ALU64, 0x00, 0, 0, 1),
        always(-3),
        jump_imm(JMP, 0x10, 0, 0, 1),
        mov_imm(0, 9),
        exit(),
    ];
    assert_eq!(left(&program).len(), program.len());
    assert_eq!(result(&program), 9);
}

/// Counts from 0 up to a constant.
fn counting(constant: &[Instruction]) -> Vec<Instruction> {
    let body = [
        mov_imm(0, 0),
        jump(JMP, 0x30, 0, 1, 2),
        op_imm(ALU64, 0x00, 0, 0, 1),
        always(-3),
        exit(),
    ];
    join(&[constant, &body])
}

#[test]
fn loops_with_a_constant_bound_end() {
    // Nothing of it is dead, though the verifier knows each round.
    let program = counting(&constant(WORD, 1, 16));
    assert_eq!(left(&program).len(), program.len());
    assert_eq!(result(&program), 5);
    // None of it is executed.
    let program = counting(&[mov_imm(1, 0)]);
    assert_eq!(left(&program), [0, 1, 5]);
    assert_eq!(result(&program), 0);
    // A constant that the loop does not change stays known in it.
    let program = join(&[
        &constant(WORD, 6, 0),
        &[mov_imm(0, 0)],
        &[jump_imm(JMP, 0x50, 6, 0, 1), call(UNKNOWN_HELPER)],
        &[op_imm(ALU64, 0x00, 0, 0, 1), jump_imm(JMP, 0xa0, 0, 3, -4)],
        &[exit()],
    ]);
    assert!(!left(&program).contains(&5));
    assert_eq!(result(&program), 3);
    // One that it changes does not, however late.
    let program = join(&[
        &[mov_imm(6, 1), mov_imm(0, 0)],
        &[jump_imm(JMP, 0x50, 6, 0, 1), op_imm(ALU64, 0x00, 0, 0, 100)],
        &[mov_imm(6, 0), op_imm(ALU64, 0x00, 0, 0, 1)],
        &[jump_imm(JMP, 0xa0, 0, 3, -5), exit()],
    ]);
    assert_eq!(left(&program).len(), program.len());
    assert_eq!(result(&program), 102);
}

#[test]
fn functions_that_nothing_calls_are_dead() {
    // The call is in a dead branch; the function has a function of its own, and the last one is called.
    let program = join(&[
        &constant(WORD, 1, 0),
        &[jump_imm(JMP, 0x10, 1, 1, 1), call_function(2)],
        &[call_function(5), exit()],
        &[call_function(1), exit()],
        &[call(UNKNOWN_HELPER), exit()],
        &[mov_imm(0, 8), exit()],
    ]);
    assert_eq!(left(&program), [0, 1, 2, 5, 6, 11, 12]);
    assert_eq!(result(&program), 8);
    let code = translate(&program, 0).expect("supported");
    let functions = code.functions.iter().map(|one| one.instruction);
    // The rest has no code, in whatever function it counts as.
    assert_eq!(functions.collect::<Vec<_>>(), [0, 11]);
    // So it is with the callback of a dead loop.
    let program = join(&[
        &constant(WORD, 1, 0),
        &[mov_imm(0, 2), jump_imm(JMP, 0x10, 1, 1, 6), mov_imm(1, 3)],
        &function(2, 5),
        &[mov_imm(3, 0), mov_imm(4, 0), call(181), exit()],
        &[call(UNKNOWN_HELPER), exit()],
    ]);
    assert_eq!(left(&program), [0, 1, 2, 3, 11]);
    assert_eq!(result(&program), 2);
}

#[test]
fn functions_know_the_arguments_that_all_calls_agree_on() {
    // R1 is 1 in both calls, R2 is not the same, R6 and the stack are the caller's own.
    let program = |second: i32| {
        join(&[
            &[mov_imm(6, 1), store_imm(DOUBLE, 10, -8, 1)],
            &[mov_imm(1, 1), mov_imm(2, 1), call_function(5)],
            &[mov_imm(1, 1), mov_imm(2, second), call_function(2)],
            &[mov(0, 6), exit()],
            &[jump_imm(JMP, 0x10, 1, 1, 1), exit()],
            &[jump_imm(JMP, 0x10, 2, 1, 1), exit()],
            &[jump_imm(JMP, 0x10, 6, 1, 1), exit()],
            &[
                load(DOUBLE, 0, 10, -8),
                jump_imm(JMP, 0x10, 0, 1, 1),
                exit(),
            ],
            &[mov_imm(0, 1), exit()],
        ])
    };
    let dead = |second| {
        let program = program(second);
        let left = left(&program);
        let exits = [11, 13, 15, 18, 20];
        exits.map(|exit| !left.contains(&exit))
    };
    assert_eq!(dead(1), [true, true, false, false, false]);
    assert_eq!(dead(2), [true, false, false, false, false]);
}

#[test]
fn callbacks_know_nothing() {
    // Its arguments are not those of the function that passes it on.
    let program = join(&[
        &[mov_imm(1, 3)],
        &function(2, 6),
        &[
            mov_imm(3, 0),
            mov_imm(4, 0),
            call(181),
            mov_imm(0, 5),
            exit(),
        ],
        &[
            jump_imm(JMP, 0x10, 1, 3, 2),
            mov_imm(0, 0),
            exit(),
            mov_imm(0, 1),
            exit(),
        ],
    ]);
    assert_eq!(left(&program).len(), program.len());
    // Behind the call, R1 to R5 and the stack are what it made of them.
    let program = join(&[
        &[store_imm(DOUBLE, 10, -8, 1), mov_imm(1, 3)],
        &function(2, 10),
        &[
            mov(3, 10),
            op_imm(ALU64, 0x00, 3, 0, -8),
            mov_imm(4, 0),
            call(181),
        ],
        &[
            load(DOUBLE, 0, 10, -8),
            jump_imm(JMP, 0x10, 0, 1, 1),
            exit(),
        ],
        &[mov_imm(0, 77), exit()],
        &[
            op_imm(ALU64, 0x00, 1, 0, 2),
            store(DOUBLE, 2, 0, 1),
            mov_imm(0, 0),
            exit(),
        ],
    ]);
    assert_eq!(result(&program), 4);
}

/// Jumps to an address in a register are not followed, and nothing is known to be dead; nor is a malformed program changed.
#[test]
fn what_cant_be_followed_stays() {
    let dead = [exit(), call(UNKNOWN_HELPER)];
    for odd in [
        raw(0x0d, 1, 0, 0, 0),
        always(100),
        always(-100),
        always_far(i32::MAX),
        jump_imm(JMP, 0x10, 1, 0, 100),
        call_function(100),
        raw(0x18, 1, 4, 0, 100),
        raw(0x18, 1, 0, 0, 0),
        mov_imm(0, 0),
    ] {
        let program = join(&[&[jump_imm(JMP, 0x10, 1, 0, 2)], &dead, &[odd]]);
        assert_eq!(reduced(&program), program, "{odd:?}");
    }
    assert_eq!(reduced(&[]), []);
}

/// Any instructions have an answer, as long as they are, in which nothing more is dead.
#[test]
fn any_instructions_have_an_answer() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let length = random.below(40);
        let mut instruction = || {
            let short = |random: &mut Random| random.below(60) as i16 - 20;
            let code = random.choose(&[0x05, 0x06, 0x07, 0x18, 0x61, 0x63, 0x85, 0x95, 0xbf, 0xe5]);
            let code = if random.one_in(2) {
                random.next() as u8
            } else {
                code
            };
            let registers = random.next();
            let (dst, src) = (registers as u8 & 15, (registers >> 8) as u8 & 15);
            let offset = if random.one_in(2) {
                0
            } else {
                short(&mut random)
            };
            let immediate = match random.below(3) {
                0 => random.immediate(),
                1 => FROZEN,
                _ => i32::from(short(&mut random)),
            };
            raw(code, dst, src, offset, immediate)
        };
        let program: Vec<Instruction> = (0..length).map(|_| instruction()).collect();
        let once = reduced(&program);
        assert_eq!(once.len(), program.len());
        assert_eq!(reduced(&once), once, "{program:?}");
    }
}
