//! Locks of tables that processes of several PID namespaces share.

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
    probes::Probes,
};
use common::{Binary, Target, attach_at_entry};
use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

/// The file of a table's memory, and what comes before its buckets of 16 bytes.
const MEMORY: &str = "memfd:uprobe-map";
const HEAD: usize = 64;
const BUCKETS: usize = 64;
/// The bits of a holder's number that are the area's.
const AREA_BITS: u32 = 15;

/// The locks of the one table that this process has.
fn locks() -> Vec<&'static AtomicU32> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut lines = maps.lines().filter(|line| line.contains(MEMORY));
    let (start, _) = lines.next().unwrap().split_once('-').unwrap();
    assert_eq!(lines.count(), 0, "there is one table");
    let start = usize::from_str_radix(start, 16).unwrap() + HEAD;
    // SAFETY: the table is mapped there, until the test ends.
    let lock = |index: usize| unsafe { AtomicU32::from_ptr((start + 16 * index) as *mut u32) };
    (0..BUCKETS).map(lock).collect()
}

/// A process that is number 1 of a PID namespace of its own, and its number here.
fn contained(binary: &Binary) -> (Target, i32) {
    let starter = ["unshare", "--pid", "--fork", "--kill-child"];
    let process = binary.start_by(&starter, &[]);
    let pid = process.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    (process, children.trim().parse().unwrap())
}

/// Has a process call once. Returns all updates so far, and those that failed.
fn call(process: &mut Target, probes: &Probes) -> [u64; 2] {
    process.send("call 1");
    process.line();
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    let word = |index: usize| u64::from_ne_bytes(bytes[8 * index..][..8].try_into().unwrap());
    [word(0), word(1)]
}

#[test]
fn a_lock_is_taken_over_from_a_holder_that_ended_and_from_no_other() {
    let binary = Binary::compile("sharing.c", &[]);
    let object = compile::bpf("tests/table_locks/update.bpf.c");
    let object = LoadedObject::from_bytes("update", &object, &Choice::default()).unwrap();
    let mut probes = Probes::new(object).unwrap();
    let (mut one, first) = contained(&binary);
    let (mut other, second) = contained(&binary);
    // Number 1 each, in their own namespaces and among the processes.
    let held = attach_at_entry(&mut probes, first, "on_update", "handle").unwrap();
    let attached = attach_at_entry(&mut probes, second, "on_update", "handle").unwrap();
    assert_eq!(call(&mut one, &probes), [1, 0]);
    assert_eq!(call(&mut other, &probes), [2, 0]);
    let locks = locks();
    let set = |holder: u32| {
        locks
            .iter()
            .for_each(|lock| lock.store(holder, Ordering::SeqCst))
    };
    let are = |holder: u32| {
        locks
            .iter()
            .all(|lock| lock.load(Ordering::SeqCst) == holder)
    };

    // A lock of the other process, which is there.
    set(1 << AREA_BITS | 1);
    assert_eq!(call(&mut other, &probes), [3, 1]);
    probes.trace(|_| ()).unwrap();
    assert!(are(1 << AREA_BITS | 1));
    let error = probes
        .map("table")
        .unwrap()
        .set(&[1; 4], &[0; 8])
        .unwrap_err();
    assert!(error.to_string().contains("can't be written"), "{error}");
    // Once it has ended.
    one.kill();
    common::wait_until(|| fs::metadata(format!("/proc/{first}")).is_err());
    assert_eq!(call(&mut other, &probes), [4, 2]);
    probes.trace(|_| ()).unwrap();
    assert!(are(0));
    assert_eq!(call(&mut other, &probes), [5, 2]);
    // The thread's own: one that had its area has ended.
    set(2 << AREA_BITS | 1);
    assert_eq!(call(&mut other, &probes), [6, 2]);
    // Of the tool's own changes.
    set(1 << AREA_BITS | 1);
    probes.map("table").unwrap().set(&[1; 4], &[0; 8]).unwrap();
    assert!(are(0));
    probes.detach(held).unwrap();
    probes.detach(attached).unwrap();
}
