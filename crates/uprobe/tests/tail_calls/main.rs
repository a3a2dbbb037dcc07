//! Tail calls in a running process: the same object in the kernel and in user space, over the same calls.

#![allow(unsafe_code, reason = "puts a foreign program into the kernel's array")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
#[path = "../common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Error, Place, Probes},
    process::{Function, Image},
};
use common::{Binary, Target, attach_at_entry};
use in_kernel::InKernel;
use libbpf_rs::{MapCore as _, MapFlags, libbpf_sys};
use std::os::fd::{AsFd as _, AsRawFd as _};

const CALLS: u64 = 500;
const COOKIE: u64 = 7;
const PROGRAMS: [&str; 2] = ["from_main", "from_function"];
/// The words of the object's variables.
const ADDED: usize = 2;
const ROUNDS: usize = 6;
const LATE: usize = 7;

fn open(object: &[u8], programs: &[&str]) -> Probes {
    let choice = Choice {
        programs,
        ..Choice::default()
    };
    Probes::new(LoadedObject::from_bytes("tail", object, &choice).unwrap()).unwrap()
}

fn handle(process: &Target) -> Function {
    let image = Image::of_program(process.pid()).unwrap();
    image.function("handle").unwrap()
}

/// Results of the programs after the calls of one round, and of another with other programs in the array.
type Left = [[Vec<u8>; 2]; 2];

fn in_kernel(object: &[u8], binary: &Binary) -> Left {
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let kernel = InKernel::attach(object, &PROGRAMS, COOKIE, (binary, &process));
    let left = || {
        let lengths = (0..64).flat_map(|length| kernel.value("by_length", length));
        [kernel.value(".bss", 0), lengths.collect()]
    };
    assert_eq!(process.go(), CALLS);
    let first = left();
    let mut programs = kernel.object.progs_mut();
    let late = programs.find(|one| one.name() == "late").unwrap();
    let fd = late.as_fd().as_raw_fd().to_ne_bytes();
    let stages = kernel.map("stages");
    stages
        .update(&2_u32.to_ne_bytes(), &fd, MapFlags::ANY)
        .unwrap();
    stages.delete(&0_u32.to_ne_bytes()).unwrap();
    assert_eq!(process.go(), 2 * CALLS);
    [first, left()]
}

fn in_process(object: &[u8], binary: &Binary) -> Left {
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let mut probes = open(object, &[]);
    let function = handle(&process);
    let place = |program| Place {
        program,
        function: &function,
        at: At::Entry,
        cookie: COOKIE,
    };
    let attached = probes.attach(process.pid(), &PROGRAMS.map(place)).unwrap();
    assert_eq!(process.go(), CALLS);
    let first = left(&probes);
    probes.set_tail_call("stages", 2, Some("late")).unwrap();
    probes.set_tail_call("stages", 0, None).unwrap();
    probes.set_tail_call("stages", 0, None).unwrap();
    assert_eq!(process.go(), 2 * CALLS);
    for counts in probes.counts(&attached) {
        assert_eq!((counts.hits, counts.missed), (2 * CALLS, 0));
    }
    probes.detach(attached).unwrap();
    [first, left(&probes)]
}

fn left(probes: &Probes) -> [Vec<u8>; 2] {
    let get = |name: &str, key: u32| {
        let map = probes.map(name).unwrap();
        map.get(&key.to_ne_bytes()).unwrap().unwrap()
    };
    let lengths = (0..64).flat_map(|length| get("by_length", length));
    [get(".bss", 0), lengths.collect()]
}

fn word(bytes: &[u8], index: usize) -> u64 {
    u64::from_ne_bytes(bytes[8 * index..][..8].try_into().unwrap())
}

#[test]
fn programs_leave_what_they_leave_in_the_kernel() {
    let object = compile::bpf("tests/tail_calls/tail.bpf.c");
    let binary = Binary::compile("serve.c", &[]);
    let kernel = in_kernel(&object, &binary);
    let user = in_process(&object, &binary);
    assert_eq!(user, kernel);
    // All kinds of calls were made.
    let [[first, _], [second, _]] = &user;
    assert!(word(first, ADDED) > 0 && word(first, LATE) == 0);
    assert!(word(first, ROUNDS) > 33 * CALLS);
    assert_eq!(word(first, ADDED), word(second, ADDED));
    assert!(word(second, LATE) > 0);
}

/// One program of the object is chosen; libbpf needs those of its array too.
#[test]
fn what_tail_calls_lead_to_is_loaded_with_a_chosen_program() {
    let object = compile::bpf("tests/tail_calls/tail.bpf.c");
    let probes = open(&object, &["from_main"]);
    let programs = probes.object().programs();
    let names: Vec<&str> = programs.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["add", "forward", "again", "from_main"]);
    let is_in_array = |name: &str| {
        let program = programs.iter().find(|one| one.name == name).unwrap();
        probes.object().is_in_array(program).unwrap()
    };
    assert!(is_in_array("add") && !is_in_array("from_main"));
}

#[test]
fn tail_calls_that_take_too_much_stack_are_refused() {
    let object = compile::bpf("tests/tail_calls/tail.bpf.c");
    let process = Binary::compile("serve.c", &[]).start(&["1", "1"]);
    let mut probes = open(&object, &[]);
    let pid = process.pid();
    let error = attach_at_entry(&mut probes, pid, "too_deep", "handle").unwrap_err();
    let Error::TailCallStack { bytes, most, .. } = error else {
        panic!("{error}");
    };
    assert!(bytes > most, "{bytes} {most}");
    // What others need is not refused with it.
    let attached = attach_at_entry(&mut probes, pid, "from_function", "handle").unwrap();
    probes.detach(attached).unwrap();
}

#[test]
fn a_program_of_another_object_is_refused() {
    let object = compile::bpf("tests/tail_calls/tail.bpf.c");
    let process = Binary::compile("serve.c", &[]).start(&["1", "1"]);
    let (mut probes, other) = (open(&object, &[]), open(&object, &[]));
    let program = &other.object().programs()[0];
    let mut maps = probes.object().maps().iter();
    let array = maps.find(|map| map.is_program_array()).unwrap();
    let (slot, fd) = (5_u32, program.fd().as_raw_fd());
    // SAFETY: the kernel reads a key and a value of 4 bytes.
    let set = unsafe {
        let (key, value) = ((&raw const slot).cast(), (&raw const fd).cast());
        libbpf_sys::bpf_map_update_elem(array.fd().as_raw_fd(), key, value, 0)
    };
    assert_eq!(set, 0);
    let attached = attach_at_entry(&mut probes, process.pid(), "from_main", "handle");
    let error = attached.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("slot 5 of the map stages holds a program that isn't of this object"),
        "{error}"
    );
}
