//! Locks of tables that processes of several PID namespaces share.

use super::{attach_at_entry, common, open, variables};
use bpfcost_uprobe::probes::Probes;
use common::{Binary, Target};
use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

/// The file of a table's memory, and what comes before its buckets of 8 bytes.
const MEMORY: &str = "memfd:bpfcost-map";
const HEAD: usize = 64;
const BUCKETS: usize = 64;
/// The bits of a holder's number that are the area's.
const AREA_BITS: u32 = 15;

/// The locks of the one table that this process has.
fn locks() -> Vec<&'static AtomicU32> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut lines = maps.lines().filter(|line| line.contains(MEMORY));
    let (start, _) = lines.next().unwrap().split_once('-').unwrap();
    assert_eq!(lines.count(), 0, "the other tests of this file have none");
    let start = usize::from_str_radix(start, 16).unwrap() + HEAD;
    // SAFETY: the table is mapped there, until the test ends.
    let lock = |index: usize| unsafe { AtomicU32::from_ptr((start + 8 * index) as *mut u32) };
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

fn call(process: &mut Target, probes: &Probes) -> [u64; 3] {
    process.send("call 1");
    process.line();
    variables(probes)
}

#[test]
fn a_lock_is_taken_over_from_a_holder_that_ended_and_from_no_other() {
    let binary = Binary::compile("sharing.c", &[]);
    let mut probes = open();
    let (mut one, first) = contained(&binary);
    let (mut other, second) = contained(&binary);
    // Number 1 each, in their own namespaces and among the processes.
    let held = attach_at_entry(&mut probes, first, "on_update", "handle").unwrap();
    let attached = attach_at_entry(&mut probes, second, "on_update", "handle").unwrap();
    assert_eq!(call(&mut one, &probes), [1, 0, 0]);
    assert_eq!(call(&mut other, &probes), [2, 0, 0]);
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
    assert_eq!(call(&mut other, &probes), [3, 0, 1]);
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
    assert_eq!(call(&mut other, &probes), [4, 0, 2]);
    probes.trace(|_| ()).unwrap();
    assert!(are(0));
    assert_eq!(call(&mut other, &probes), [5, 0, 2]);
    // The thread's own: one that had its area has ended.
    set(2 << AREA_BITS | 1);
    assert_eq!(call(&mut other, &probes), [6, 0, 2]);
    // Of the tool's own changes.
    set(1 << AREA_BITS | 1);
    probes.map("table").unwrap().set(&[1; 4], &[0; 8]).unwrap();
    assert!(are(0));
    probes.detach(held).unwrap();
    probes.detach(attached).unwrap();
}
