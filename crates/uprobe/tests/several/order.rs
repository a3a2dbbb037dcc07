//! Programs at one place that are attached together, and one after the other: which run, in which order, how often.

use super::{
    common::Binary,
    compile,
    object::{PLACES, attach, open, some, step, try_attach},
};
use bpfcost_uprobe::{
    probes::{Attached, Probes},
    process::Memory,
};

const CALLS: u64 = 300;

/// The number that each program writes.
const PROGRAMS: [(&str, u64); 8] = [
    ("entry_1", 1),
    ("entry_2", 2),
    ("entry_3", 3),
    ("return_1", 4),
    ("return_2", 5),
    ("begun", 6),
    ("inner_1", 7),
    ("inner_2", 8),
];

fn number(program: &str) -> u64 {
    let found = PROGRAMS.iter().find(|(name, _)| *name == program);
    found.unwrap().1
}

/// The runs of a program by its own count, in the global variables.
fn runs(probes: &Probes, program: &str) -> u64 {
    let values = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    let at = 8 * number(program) as usize;
    u64::from_ne_bytes(values[at..][..8].try_into().unwrap())
}

/// The numbers of the programs that ran since the last time, and their cookies.
fn records(probes: &mut Probes) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    let take = |_, record: &[u8]| {
        let word = |index: usize| u64::from_ne_bytes(record[8 * index..][..8].try_into().unwrap());
        all.push((word(2), word(3)));
    };
    probes.consume("events", take).unwrap();
    all
}

#[test]
fn each_program_of_a_place_has_all_calls() {
    let object = compile::bpf("tests/several/steps.bpf.c");
    let binary = Binary::compile("steps.c", &[]);
    let threads = 4;
    let mut process = binary.start(&[&threads.to_string(), &CALLS.to_string()]);
    let all: Vec<&str> = PLACES.iter().map(|(name, _)| *name).collect();
    let groups: [&[&str]; 6] = [
        &["entry_1", "entry_2"],
        &["entry_3", "entry_1", "entry_2"],
        &["return_1", "return_2"],
        &["entry_2", "begun"],
        &["inner_2", "inner_1"],
        &all,
    ];
    for names in groups {
        let mut probes = open(&object);
        let attached = attach(&mut probes, &process, &some(names));
        assert_eq!(process.stop(), (threads * CALLS, 0), "{names:?}");
        let counts = probes.counts(&attached);
        for (name, counts) in names.iter().zip(&counts) {
            assert_eq!(counts.hits + counts.missed, threads * CALLS, "{name}");
            assert_eq!(runs(&probes, name), counts.hits, "{name} of {names:?}");
        }
        let sum: u64 = counts.iter().map(|counts| counts.hits).sum();
        let hits = probes.detach(attached).unwrap();
        assert_eq!(hits.entry.hits + hits.returns.hits + hits.inside.hits, sum);
        let memory = Memory::open(process.pid()).unwrap();
        step(&process).check(&memory).unwrap();
        // What is detached runs no more.
        assert_eq!(process.stop(), (threads * CALLS, 0));
        assert_eq!(records(&mut probes).len() as u64, sum);
    }
}

#[test]
fn programs_come_and_go_at_one_place_in_any_order() {
    let object = compile::bpf("tests/several/steps.bpf.c");
    let mut process = Binary::compile("steps.c", &[]).start(&["1", &CALLS.to_string()]);
    let mut probes = open(&object);
    let mut attached: Vec<(&[&str], Attached, u64)> = Vec::new();
    // What is attached (+) or detached (-), and what each call runs then: the latest first.
    let steps: [(char, &[&str], &[u64]); 13] = [
        ('+', &["entry_1", "return_1"], &[1, 4]),
        ('+', &["entry_2", "begun"], &[6, 2, 1, 4]),
        ('+', &["entry_3", "return_2"], &[3, 6, 2, 1, 5, 4]),
        ('-', &["entry_1", "return_1"], &[3, 6, 2, 5]),
        ('-', &["entry_3", "return_2"], &[6, 2]),
        ('+', &["entry_1", "return_1"], &[1, 6, 2, 4]),
        ('+', &["inner_1"], &[1, 6, 2, 7, 4]),
        ('-', &["entry_2", "begun"], &[1, 7, 4]),
        ('+', &["inner_2", "entry_3"], &[3, 1, 8, 7, 4]),
        ('-', &["entry_1", "return_1"], &[3, 8, 7]),
        ('-', &["inner_2", "entry_3"], &[7]),
        ('+', &["inner_2", "inner_2"], &[8, 8, 7]),
        ('-', &["inner_1"], &[8, 8]),
    ];
    for (what, names, expected) in steps {
        if what == '+' {
            let new = attach(&mut probes, &process, &some(names));
            attached.push((names, new, 0));
        } else {
            let index = attached.iter().position(|(other, ..)| *other == names);
            let (_, old, calls) = attached.remove(index.unwrap());
            let counts = probes.counts(&old);
            assert!(
                counts
                    .iter()
                    .all(|one| (one.hits, one.missed) == (calls, 0))
            );
            probes.detach(old).unwrap();
        }
        assert_eq!(process.stop(), (CALLS, 0));
        let records = records(&mut probes);
        assert_eq!(records.len(), CALLS as usize * expected.len());
        for call in records.chunks(expected.len()) {
            let ran: Vec<u64> = call.iter().map(|&(program, _)| program).collect();
            assert_eq!(ran, expected, "after {what}{names:?}");
            for &(program, cookie) in call {
                let (name, _) = PROGRAMS[program as usize - 1];
                let index = PLACES.iter().position(|&(other, _)| other == name);
                // That of a USDT program says where its arguments are.
                assert!(
                    program > 5 || cookie == index.unwrap() as u64,
                    "{name}: {cookie}"
                );
            }
        }
        for (_, attached, calls) in &mut attached {
            *calls += CALLS;
            let counts = probes.counts(attached);
            assert!(
                counts
                    .iter()
                    .all(|one| (one.hits, one.missed) == (*calls, 0)),
                "{counts:?}"
            );
        }
    }
    for (_, last, _) in attached {
        probes.detach(last).unwrap();
    }
    step(&process)
        .check(&Memory::open(process.pid()).unwrap())
        .unwrap();
    assert_eq!(process.stop(), (CALLS, 0));
    assert_eq!(records(&mut probes), []);
}

#[test]
fn what_forked_children_may_run_does_not_change() {
    let object = compile::bpf("tests/several/steps.bpf.c");
    let mut process = Binary::compile("steps.c", &[]).start(&["2", &CALLS.to_string()]);
    let mut probes = open(&object);
    probes.follow_children();
    let both = attach(&mut probes, &process, &some(&["entry_1", "entry_2"]));
    let error = try_attach(&mut probes, &process, &some(&["entry_3"])).unwrap_err();
    assert!(
        error.to_string().contains("attach both together"),
        "{error}"
    );
    assert_eq!(process.stop(), (2 * CALLS, 0));
    for counts in probes.counts(&both) {
        assert_eq!(counts.hits + counts.missed, 2 * CALLS);
    }
    probes.detach(both).unwrap();
}

#[test]
fn a_place_that_others_changed_gets_no_second_program() {
    let object = compile::bpf("tests/several/steps.bpf.c");
    let mut process = Binary::compile("steps.c", &[]).start(&["1", &CALLS.to_string()]);
    let mut probes = open(&object);
    let first = attach(&mut probes, &process, &some(&["entry_1"]));
    let memory = Memory::open(process.pid()).unwrap();
    let (at, mut jump) = (step(&process).address, [0; 1]);
    memory.read(at, &mut jump).unwrap();
    // As the kernel's uprobe would, while no thread is there.
    memory.write(at, &[0xcc]).unwrap();
    let error = try_attach(&mut probes, &process, &some(&["entry_2"])).unwrap_err();
    let changed = bpfcost_uprobe::process::Error::Changed {
        function: "step".to_owned(),
        offset: 0,
        expected: jump[0],
        found: 0xcc,
    };
    assert_eq!(error.to_string(), changed.to_string());
    memory.write(at, &jump).unwrap();
    assert_eq!(process.stop(), (CALLS, 0));
    assert_eq!(probes.detach(first).unwrap().entry.hits, CALLS);
}
