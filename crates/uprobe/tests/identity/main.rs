//! Threads and processes that could be taken for one another: none dies, none gets another one's number, every call is
//! counted.

#![allow(
    unsafe_code,
    reason = "locks of a table are set as another process would"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{self, Attached, Probes},
    process::{Error, Image, Runtime},
};
use common::{Binary, Target, attach_at_entry};

const CALLS: u64 = 100_000;

fn open() -> Probes {
    let object = compile::bpf("tests/identity/identity.bpf.c");
    let object = LoadedObject::from_bytes("identity", &object, &Choice::default()).unwrap();
    Probes::new(object).unwrap()
}

fn start() -> Target {
    Binary::compile("sharing.c", &[]).start(&[])
}

fn attach(probes: &mut Probes, process: &Target) -> probes::Result<Attached> {
    attach_at_entry(probes, process.pid(), "on_handle", "handle")
}

/// Returns what the program counted: calls, and those with another thread's number.
fn variables(probes: &Probes) -> [u64; 2] {
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    let word = |index: usize| u64::from_ne_bytes(bytes[8 * index..][..8].try_into().unwrap());
    [word(0), word(1)]
}

/// Has a probed process do something, during which each call is counted and nothing is wrong. Returns the hits and the
/// missed calls.
fn probed(process: &mut Target, command: &str) -> (u64, u64) {
    let mut probes = open();
    let attached = attach(&mut probes, process).unwrap();
    process.send(command);
    let line = process.line();
    let calls = line
        .strip_suffix(" 0")
        .unwrap_or_else(|| panic!("{command}: {line:?}"));
    let calls: u64 = calls.parse().unwrap();
    let hits = probes.detach(attached).unwrap().entry;
    assert_eq!(hits.hits + hits.missed, calls, "{command}");
    let [runs, others] = variables(&probes);
    assert_eq!((runs, others), (hits.hits, 0), "{command}");
    // Without a probe, the program is whole.
    process.send("reuse 10");
    assert_eq!(process.line(), "11 0");
    (hits.hits, hits.missed)
}

#[test]
fn a_process_that_shares_the_memory_and_came_before_is_refused_by_name() {
    let mut process = start();
    process.send("stay");
    let line = process.line();
    let other: i32 = line.split(' ').next().unwrap().parse().unwrap();
    let error = attach(&mut open(), &process).unwrap_err();
    let expected = format!(
        "process {} shares its memory with process {other} (target), which is no thread of it\n  \
         wait until process {other} has ended, or use a kernel uprobe",
        process.pid()
    );
    assert_eq!(error.to_string(), expected);
    let error = Runtime::open(other).unwrap_err();
    assert!(matches!(error, Error::MemoryShared { .. }), "{error}");
    process.send(&format!("go {CALLS}"));
    assert_eq!(process.line(), format!("{} 0", CALLS + 100_000));
    let (hits, missed) = probed(&mut process, "reuse 100");
    assert_eq!((hits, missed), (101, 0));
}

#[test]
fn a_process_that_shares_the_memory_and_comes_later_has_its_own_number() {
    for _ in 0..4 {
        let mut process = start();
        let (hits, _) = probed(&mut process, &format!("clone {CALLS}"));
        assert!(hits > CALLS, "{hits}");
    }
}

#[test]
fn nothing_more_is_attached_while_a_process_shares_the_memory() {
    let mut process = start();
    let mut probes = open();
    let attached = attach(&mut probes, &process).unwrap();
    process.send("stay");
    process.line();
    let error = attach(&mut probes, &process).unwrap_err();
    assert!(error.to_string().contains("shares its memory"), "{error}");
    process.send(&format!("go {CALLS}"));
    assert_eq!(process.line(), format!("{} 0", CALLS + 100_000));
    let second = attach(&mut probes, &process).unwrap();
    process.send("reuse 10");
    assert_eq!(process.line(), "11 0");
    assert_eq!(probes.detach(second).unwrap().entry.hits, 11);
    let hits = probes.detach(attached).unwrap().entry;
    assert_eq!(hits.hits + hits.missed, CALLS + 100_000 + 11);
    assert_eq!(variables(&probes)[1], 0);
}

#[test]
fn functions_are_restored_while_a_process_shares_the_memory() {
    let mut process = start();
    let mut probes = open();
    let attached = attach(&mut probes, &process).unwrap();
    process.send("stay");
    process.line();
    process.send(&format!("go {CALLS}"));
    let function = Image::of_program(process.pid())
        .unwrap()
        .function("handle")
        .unwrap();
    let hits = probes.detach(attached).unwrap().entry;
    assert!(hits.hits + hits.missed <= CALLS + 100_000);
    assert_eq!(process.line(), format!("{} 0", CALLS + 100_000));
    let memory = bpfcost_uprobe::process::Memory::open(process.pid()).unwrap();
    function.check(&memory).unwrap();
}

#[test]
fn a_child_of_vfork_has_its_own_number() {
    let mut process = start();
    let (hits, missed) = probed(&mut process, "vfork 200");
    assert_eq!((hits, missed), (400, 0));
}

#[test]
fn a_gs_base_of_the_process_stays_and_its_calls_are_missed() {
    for command in ["gs", "nogs"] {
        let mut process = start();
        let (hits, missed) = probed(&mut process, &format!("{command} {CALLS}"));
        assert_eq!((hits, missed), (0, CALLS), "{command}");
    }
}

#[test]
fn a_thread_does_not_have_the_number_of_one_that_ended() {
    for flags in [&[][..], &["-static"]] {
        let mut process = Binary::compile("sharing.c", flags).start(&[]);
        let (hits, missed) = probed(&mut process, &format!("reuse {CALLS}"));
        assert_eq!((hits, missed), (CALLS + 1, 0), "{flags:?}");
    }
}
