//! Tables that the kernel has per CPU, in running processes.

#![allow(unsafe_code, reason = "pins a process to a CPU")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
#[path = "../common/in_kernel.rs"]
mod in_kernel;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::Probes,
};
use common::{Binary, Target, attach_at_entry};
use in_kernel::InKernel;
use libbpf_rs::{MapCore as _, MapFlags};

const CALLS: u64 = 5000;
/// The words of the object's variables.
const REFUSED: usize = 1;
const REPLACED: usize = 2;
const DELETED: usize = 3;

/// Keys, and the sums of their values: of a `struct total`.
type Sums = Vec<(u32, u64, u32)>;

fn open() -> Probes {
    let object = compile::bpf("tests/thread_tables/tables.bpf.c");
    Probes::new(LoadedObject::from_bytes("tables", &object, &Choice::default()).unwrap()).unwrap()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes[..8].try_into().unwrap())
}

fn sums(entries: impl IntoIterator<Item = (Vec<u8>, Vec<Vec<u8>>)>) -> Sums {
    let half = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
    let mut all: Sums = entries
        .into_iter()
        .map(|(key, values)| {
            let runs = values.iter().map(|value| number(value)).sum();
            let sum = values.iter().map(|value| half(&value[8..])).sum();
            (half(&key), runs, sum)
        })
        .collect();
    all.sort_unstable();
    all
}

fn variables(probes: &Probes) -> Vec<u64> {
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    bytes.chunks_exact(8).map(number).collect()
}

fn of_user(probes: &Probes, map: &str) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    probes.map(map).unwrap().entries_of_threads().unwrap()
}

/// Values of other CPUs are other values: it stays on one.
fn pin(process: &Target) {
    // SAFETY: the set is plain data, and as large as it says.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(process.pid(), size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(pinned, 0);
}

fn in_kernel(binary: &Binary, process: &mut Target) -> (Sums, Vec<u64>) {
    let object = compile::bpf("tests/thread_tables/tables.bpf.c");
    let kernel = InKernel::attach(&object, &["on_steps"], 0, (binary, process));
    process.go();
    let by_key = kernel.map("by_key");
    let entries = by_key.keys().map(|key| {
        let values = by_key.lookup_percpu(&key, MapFlags::ANY).unwrap().unwrap();
        (key, values)
    });
    let variables = kernel.value(".bss", 0);
    let variables = variables.chunks_exact(8).map(number).collect();
    let left = (sums(entries), variables);
    drop(kernel);
    common::until_restored(process, "handle");
    left
}

#[test]
fn entries_of_one_thread_are_those_of_the_kernel() {
    let binary = Binary::compile("serve.c", &[]);
    let mut process = binary.start(&["1", &CALLS.to_string()]);
    pin(&process);
    let kernel = in_kernel(&binary, &mut process);
    let mut probes = open();
    let attached = attach_at_entry(&mut probes, process.pid(), "on_steps", "handle").unwrap();
    process.go();
    assert_eq!(probes.detach(attached).unwrap().entry.hits, CALLS);
    let user = (sums(of_user(&probes, "by_key")), variables(&probes));
    assert_eq!(user, kernel);
    let (_, variables) = user;
    for word in [REFUSED, REPLACED, DELETED] {
        assert!(variables[word] > 0, "{variables:?}");
    }
}

#[test]
fn values_of_all_threads_and_processes_add_up() {
    let binary = Binary::compile("serve.c", &[]);
    let mut probes = open();
    let mut hits = 0;
    for threads in ["8", "3"] {
        let mut process = binary.start(&[threads, "5000"]);
        let attached = attach_at_entry(&mut probes, process.pid(), "on_any", "handle").unwrap();
        process.go();
        hits += probes.detach(attached).unwrap().entry.hits;
        process.kill();
        let all = sums(of_user(&probes, "by_key"));
        assert_eq!(all.iter().map(|(_, runs, _)| runs).sum::<u64>(), hits);
    }
    let variables = variables(&probes);
    assert_eq!((variables[REFUSED], variables[REPLACED]), (0, 0));
    let recent = of_user(&probes, "recent").len();
    assert!((32..=64).contains(&recent), "{recent} entries are kept");
    let map = probes.map("by_key").unwrap();
    let key = of_user(&probes, "by_key").remove(0).0;
    assert!(map.of_threads_by_key(&key).unwrap().is_some());
    assert!(map.delete(&key).unwrap());
    assert_eq!(map.of_threads_by_key(&key).unwrap(), None);
}

#[test]
fn forked_children_have_values_of_their_own() {
    let mut process = Binary::compile("forked.c", &[]).start(&[]);
    let mut probes = open();
    probes.follow_children();
    let attached = attach_at_entry(&mut probes, process.pid(), "on_any", "work").unwrap();
    process.send("fork");
    assert_eq!(process.line(), "forked");
    for round in 1..=4 {
        process.send("call");
        assert_eq!(process.line(), "called");
        let all = sums(of_user(&probes, "by_key"));
        assert_eq!(all.iter().map(|(_, runs, _)| runs).sum::<u64>(), 3 * round);
        // What was deleted begins again, in all of them.
        if round == 2 {
            let map = probes.map("by_key").unwrap();
            let before = of_user(&probes, "by_key");
            assert!(before.iter().any(|(_, values)| values.len() > 1));
            for (key, _) in before {
                assert!(map.delete(&key).unwrap());
            }
            process.send("call");
            assert_eq!(process.line(), "called");
            let all = sums(of_user(&probes, "by_key"));
            assert_eq!(all.iter().map(|(_, runs, _)| runs).sum::<u64>(), 3);
            break;
        }
    }
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 9);
}

#[test]
fn a_table_that_is_too_large_is_refused() {
    let process = Binary::compile("serve.c", &[]).start(&["1", "1"]);
    let mut probes = open();
    let error = attach_at_entry(&mut probes, process.pid(), "on_large", "handle").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the map large needs 480000 bytes in each thread, and 196608 are left\n  \
         lower its max_entries, or use a kernel uprobe"
    );
}
