//! Arenas in running processes: what programs of the process, programs of the kernel and the tool see of them.

#![allow(unsafe_code, reason = "reads the kernel's arena, and runs programs")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
#[path = "../common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject, LoadedProgram},
    probes::{Error, Probes},
    process::{self, Mapping, Runtime, Shared},
};
use common::{Binary, Target, attach_at_entry};
use in_kernel::InKernel;
use libbpf_rs::libbpf_sys;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::fd::{AsFd as _, AsRawFd as _},
};

const CALLS: u64 = 2000;
/// The variables of the object, in words.
const LOADS: usize = 0;
const CHAINED: usize = 2;
const FROM_PAGE: usize = 3;
const ALL_AT: usize = 4;
const NODES_AT: usize = 5;
/// Variables of the arena: the chains, and what is behind them.
const CHAINS: usize = 16;
const USED: usize = CHAINS;
const REFUSED: usize = CHAINS + 1;
const COUNTED: usize = CHAINS + 2;
const BUSY: usize = CHAINS + 3;
const FACTOR: usize = CHAINS + 5;
const LOCKED: usize = CHAINS + 6;
const ALL_WORDS: usize = CHAINS + 7;
const NODES: usize = 400;
const NODE_WORDS: usize = 4;

fn open(source: &str) -> Probes {
    let object = compile::bpf(source);
    Probes::new(LoadedObject::from_bytes("arena", &object, &Choice::default()).unwrap()).unwrap()
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().unwrap());
    bytes.chunks_exact(8).map(word).collect()
}

fn seen(probes: &Probes) -> Vec<u64> {
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap();
    words(&bytes.unwrap())
}

fn arena(probes: &Probes, at: u64, count: usize) -> Vec<u64> {
    words(&probes.map("arena").unwrap().read(at, 8 * count).unwrap())
}

/// Runs a program of the kernel.
fn run(probes: &Probes, name: &str) {
    let programs = probes.object().programs();
    let program: &LoadedProgram = programs.iter().find(|one| one.name == name).unwrap();
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // SAFETY: the options are as large as they say, and have no buffers.
    let done =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.fd().as_raw_fd(), &raw mut options) };
    assert_eq!((done, options.retval), (0, 0), "{name}");
}

/// Results of the programs: their variables, and those of the arena, without the addresses that differ.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    seen: Vec<u64>,
    all: Vec<u64>,
    nodes: Vec<u64>,
}

impl Left {
    fn new(mut seen: Vec<u64>, read: impl Fn(u64, usize) -> Vec<u64>) -> Self {
        let nodes_at = seen[NODES_AT];
        let mut all = read(seen[ALL_AT], ALL_WORDS);
        let mut nodes = read(nodes_at, NODES * NODE_WORDS);
        let links = nodes.iter_mut().step_by(NODE_WORDS);
        for link in all[..CHAINS].iter_mut().chain(links) {
            if *link != 0 {
                *link -= nodes_at - 1;
            }
        }
        seen.truncate(ALL_AT);
        Left { seen, all, nodes }
    }

    fn read(probes: &Probes) -> Self {
        Left::new(seen(probes), |at, count| arena(probes, at, count))
    }

    fn of_kernel(kernel: &InKernel) -> Self {
        let read = |at: u64, count: usize| {
            let at = std::ptr::with_exposed_provenance::<u64>(at as usize);
            // SAFETY: libbpf has mapped the arena here, and no program runs now.
            unsafe { std::slice::from_raw_parts(at, count) }.to_vec()
        };
        Left::new(words(&kernel.value(".bss", 0)), read)
    }
}

fn in_kernel(program: &str, binary: &Binary) -> Left {
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let object = compile::bpf("tests/arena/arena.bpf.c");
    let kernel = InKernel::attach(&object, &[program], 0, (binary, &process));
    assert_eq!(process.go(), CALLS);
    Left::of_kernel(&kernel)
}

fn in_process(program: &str, binary: &Binary) -> Left {
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    let mut probes = open("tests/arena/arena.bpf.c");
    let attached = attach_at_entry(&mut probes, process.pid(), program, "handle").unwrap();
    assert_eq!(process.go(), CALLS);
    let hits = probes.detach(attached).unwrap();
    assert_eq!((hits.entry.hits, hits.entry.missed), (CALLS, 0));
    Left::read(&probes)
}

#[test]
fn programs_leave_what_they_leave_in_the_kernel() {
    if !common::require::host() {
        return;
    }
    let binary = Binary::compile("serve.c", &[]);
    let user = in_process("chain", &binary);
    assert_eq!(user, in_kernel("chain", &binary));
    assert_eq!(user.all[COUNTED], CALLS);
    assert!(user.all[USED] > NODES as u64 && user.all[REFUSED] > 0);
    assert!(user.nodes.iter().step_by(NODE_WORDS).any(|next| *next != 0));
    let user = in_process("mixed", &binary);
    assert_eq!(user, in_kernel("mixed", &binary));
    assert!(user.seen[LOADS] > 0 && user.nodes.iter().all(|word| *word < 1 << 63));
}

/// Loads give 0, stores do nothing, and the process lives.
#[test]
fn bad_pointers_do_what_they_do_in_the_kernel() {
    if !common::require::host() {
        return;
    }
    let binary = Binary::compile("serve.c", &[]);
    let user = in_process("wild", &binary);
    assert_eq!(user, in_kernel("wild", &binary));
    assert!(user.seen[LOADS] > 10 * CALLS, "{user:?}");
}

#[test]
fn process_kernel_and_tool_see_the_same_pages() {
    if !common::require::host() {
        return;
    }
    let mut process = Binary::compile("serve.c", &[]).start(&["1", "300"]);
    let mut probes = open("tests/arena/arena.bpf.c");
    run(&probes, "make_page");
    let attached = attach_at_entry(&mut probes, process.pid(), "chain", "handle").unwrap();
    assert_eq!(process.go(), 300);
    run(&probes, "sum");
    let variables = seen(&probes);
    let (all_at, nodes_at) = (variables[ALL_AT], variables[NODES_AT]);
    let nodes = arena(&probes, nodes_at, NODES * NODE_WORDS);
    let by_tool: u64 = nodes
        .chunks_exact(NODE_WORDS)
        .map(|node| node[2] * node[1] + node[3])
        .sum();
    assert!(by_tool > 0);
    assert_eq!(variables[CHAINED], by_tool);
    // Of the page that a program of the kernel made, each word was read once.
    assert_eq!(variables[FROM_PAGE], (0..300).map(|i| i * 3).sum::<u64>());
    // What the tool writes, the process adds.
    let factor = 1000_u64.to_ne_bytes();
    let map = probes.map("arena").unwrap();
    map.write(all_at + 8 * FACTOR as u64, &factor).unwrap();
    assert_eq!(process.go(), 600);
    run(&probes, "sum");
    let more = seen(&probes)[CHAINED] - by_tool;
    assert!(more > 300 * 1000, "{more}");
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 600);
    for (at, bytes) in [(0, 8), (all_at, usize::MAX), (nodes_at + (1 << 20), 1)] {
        let map = probes.map("arena").unwrap();
        let error = map.read(at, bytes).unwrap_err().to_string();
        assert!(
            error.contains("arena can't be read: Bad address"),
            "{error}"
        );
    }
    let error = probes.map(".bss").unwrap().read(0, 1).unwrap_err();
    assert!(
        error.to_string().contains("no address of an arena"),
        "{error}"
    );
}

#[test]
fn threads_count_in_an_arena_under_a_lock() {
    let mut process = Binary::compile("serve.c", &[]).start(&["8", "20000"]);
    let mut probes = open("tests/arena/arena.bpf.c");
    let attached = attach_at_entry(&mut probes, process.pid(), "locked", "handle").unwrap();
    let calls = process.go();
    let counts = probes.detach(attached).unwrap().entry;
    assert_eq!(counts.hits + counts.missed, calls);
    let all = arena(&probes, seen(&probes)[ALL_AT], ALL_WORDS);
    assert_eq!(all[COUNTED], counts.hits);
    // How often the lock was busy for too long stands behind the lock itself.
    assert_eq!(all[LOCKED] + (all[BUSY] >> 32), counts.hits);
    assert_eq!(all[BUSY] as u32, 0);
}

/// A page that was never made: the kernel can't be asked for it here, and gives nothing there.
#[test]
fn pages_that_can_not_be_had_are_nothing() {
    if !common::require::host() {
        return;
    }
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["1", "100"]);
    let mut probes = open("tests/arena/fault.bpf.c");
    let variables = |probes: &Probes| seen(probes)[2..].to_vec();
    let attached = attach_at_entry(&mut probes, process.pid(), "use", "handle").unwrap();
    assert_eq!(process.go(), 100);
    assert_eq!(variables(&probes), [0, 0, 100]);
    run(&probes, "make_page");
    assert_eq!(process.go(), 200);
    let user = variables(&probes);
    assert_eq!(user, [(100..199).sum(), 0, 200]);
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 200);
    let start = seen(&probes)[0];
    assert_eq!(arena(&probes, start + 24, 1), [199]);
    let map = probes.map("arena").unwrap();
    assert!(map.read(start + 4096, 8).is_err());

    let mut process = binary.start(&["1", "100"]);
    let object = compile::bpf("tests/arena/fault.bpf.c");
    let kernel = InKernel::attach(&object, &["use"], 0, (&binary, &process));
    assert_eq!(process.go(), 100);
    let mut programs = kernel.object.progs_mut();
    let program = programs.find(|one| one.name() == "make_page").unwrap();
    assert_eq!(
        program
            .test_run(libbpf_rs::ProgramInput::default())
            .unwrap()
            .return_value,
        0
    );
    assert_eq!(process.go(), 200);
    assert_eq!(words(&kernel.value(".bss", 0))[2..], user);
}

#[test]
fn objects_have_arenas_of_their_own() {
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["1", "100"]);
    let mut all = [(); 2].map(|()| open("tests/arena/arena.bpf.c"));
    let starts = [0, 1].map(|index: usize| all[index].map("arena").unwrap().arena().unwrap().start);
    assert_ne!(starts[0], starts[1]);
    for (round, probes) in (1..).zip(&mut all) {
        let attached = attach_at_entry(probes, process.pid(), "chain", "handle").unwrap();
        assert_eq!(process.go(), round * 100);
        probes.detach(attached).unwrap();
        let all = arena(probes, seen(probes)[ALL_AT], ALL_WORDS);
        assert_eq!(all[COUNTED], 100);
    }
}

fn open_files(process: &Target) -> BTreeSet<OsString> {
    let all = std::fs::read_dir(format!("/proc/{}/fd", process.pid())).unwrap();
    all.map(|one| one.unwrap().file_name()).collect()
}

fn mapped(process: &Target) -> Vec<Mapping> {
    process::mappings(process.pid()).unwrap()
}

/// The next attempt says the same, not that the arena's address is taken.
#[test]
fn an_arena_does_not_stay_where_another_map_has_no_room() {
    if !common::require::host() {
        return;
    }
    let process = Binary::compile("serve.c", &[]).start(&["1", "10"]);
    let mut probes = open("tests/arena/large.bpf.c");
    let start = probes.map("arena").unwrap().arena().unwrap().start;
    for attempt in 0..2 {
        let error = attach_at_entry(&mut probes, process.pid(), "add", "handle").unwrap_err();
        assert!(
            matches!(&error, Error::ThreadMemory { map, .. } if map == "large"),
            "{attempt}: {error}"
        );
        assert!(!mapped(&process).iter().any(|one| one.contains(start)));
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let mut process = Binary::compile("serve.c", &[]).start(&["1", "10"]);
    let mut probes = open("tests/arena/arena.bpf.c");
    let start = probes.map("arena").unwrap().arena().unwrap().start;
    let file = rustix::fs::memfd_create("in-the-way", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 4096).unwrap();
    let mut runtime = Runtime::open(process.pid()).unwrap();
    let shared = Shared {
        file: file.as_fd(),
        bytes: 4096,
        is_read_only: false,
        again_from: None,
        at: Some(start + 8192),
    };
    assert_eq!(runtime.share(&[shared]).unwrap(), [start + 8192]);
    let again = runtime.share(&[shared]).unwrap_err();
    assert!(
        matches!(again, process::Error::AddressTaken { .. }),
        "{again}"
    );
    // Of several, none stays.
    let elsewhere = Shared { at: None, ..shared };
    let before = (open_files(&process), mapped(&process));
    let none = runtime.share(&[elsewhere, shared, elsewhere]).unwrap_err();
    assert!(
        matches!(none, process::Error::AddressTaken { .. }),
        "{none}"
    );
    assert_eq!((open_files(&process), mapped(&process)), before);
    let error = attach_at_entry(&mut probes, process.pid(), "chain", "handle").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "the arena arena can't be mapped into process {}: /memfd:in-the-way (deleted) is at {start:#x}\n  \
             try again: another address is chosen then; or use a kernel uprobe",
            process.pid()
        )
    );
    // Another object's is elsewhere.
    let mut probes = open("tests/arena/arena.bpf.c");
    let attached = attach_at_entry(&mut probes, process.pid(), "chain", "handle").unwrap();
    assert_eq!(process.go(), 10);
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 10);
}

#[test]
fn arenas_that_can_not_be_safe_are_refused() {
    for (source, says) in [
        ("tests/arena/free.bpf.c", "bpf_arena_free_pages"),
        ("tests/arena/filled.bpf.c", "BPF_F_SEGV_ON_FAULT"),
    ] {
        let object = compile::bpf(source);
        let error = LoadedObject::from_bytes("arena", &object, &Choice::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("the arena arena can't be used in user space: ")
                && text.contains(says),
            "{text}"
        );
    }
}

#[test]
fn a_process_that_filters_its_system_calls_is_refused() {
    let mut process = Binary::compile("busy.c", &[]).start(&["1", "q"]);
    let mut probes = open("tests/arena/arena.bpf.c");
    match attach_at_entry(&mut probes, process.pid(), "locked", "work").unwrap_err() {
        Error::ArenaSeccomp { program, map, .. } => assert_eq!([program, map], ["locked", "arena"]),
        // A kernel without CONFIG_CHECKPOINT_RESTORE.
        Error::Process(error) => {
            assert!(matches!(error, process::Error::Seccomp { .. }), "{error}")
        }
        other => panic!("{other}"),
    }
    assert_eq!(process.stop().1, 0);
}

/// Some kernels don't copy an arena for a forked child: its calls are missed there, and counted.
#[test]
fn forked_children_live_and_are_counted() {
    let mut process = Binary::compile("forked.c", &[]).start(&[]);
    let mut probes = open("tests/arena/arena.bpf.c");
    probes.follow_children();
    let attached = attach_at_entry(&mut probes, process.pid(), "locked", "work").unwrap();
    process.send("fork");
    assert_eq!(process.line(), "forked");
    let start = probes.map("arena").unwrap().arena().unwrap().start;
    let child = format!("/proc/{0}/task/{0}/children", process.pid());
    let child = std::fs::read_to_string(child).unwrap();
    let child = child.trim().parse().unwrap();
    let all = process::mappings(child).unwrap();
    let has_arena = all.iter().any(|one| one.contains(start));
    for round in 1..=3 {
        process.send("call");
        assert_eq!(process.line(), "called");
        let counts = probes.hits(&attached).entry;
        let hits = if has_arena { 3 * round } else { round };
        assert_eq!((counts.hits, counts.missed), (hits, 3 * round - hits));
        let all = arena(&probes, seen(&probes)[ALL_AT], ALL_WORDS);
        assert_eq!(all[COUNTED], hits);
    }
    let counts = probes.detach(attached).unwrap().entry;
    assert_eq!(counts.hits + counts.missed, 9);
    process.send("call");
    assert_eq!(process.line(), "called");
}
