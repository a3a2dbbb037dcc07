//! Tallies on flock(2): each call is counted once, and nothing of them is left. What this kernel lacks is
//! skipped, with the reason.

mod require;

use std::fs;

use bpfcost_bpf::attach::{How, Tally, attached_at};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};

const CALLS: u64 = 100;

/// What [`there`] answers where nobody is.
const NOBODY: [String; 0] = [];

const FUNCTION: &str = match cfg!(target_arch = "aarch64") {
    true => "__arm64_sys_flock",
    false => "__x64_sys_flock",
};

const HOWS: [How; 4] = [
    How::Kprobe,
    How::Kretprobe { maxactive: 1 },
    How::KretprobeMulti,
    How::Fexit,
];

/// Whether this kernel can have it; says why not.
fn can(how: How) -> bool {
    for feature in Tally::needs(how) {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{how:?}: {missing}"));
            return false;
        }
    }
    true
}

fn call() {
    let file = memfd_create("calls", MemfdFlags::CLOEXEC).expect("a file");
    for _ in 0..CALLS {
        flock(&file, FlockOperation::Unlock).expect("nobody holds it");
    }
}

/// Events of this tool in tracefs, where it is mounted.
fn events() -> usize {
    let list = fs::read_to_string("/sys/kernel/tracing/kprobe_events").unwrap_or_default();
    list.lines()
        .filter(|line| line.contains(":bpfcost/"))
        .count()
}

/// Who is attached to the function.
fn there() -> Vec<String> {
    attached_at(FUNCTION).expect("the lists can be read")
}

#[test]
fn each_call_is_counted_once() {
    if !require::host() {
        return;
    }
    for how in HOWS.into_iter().filter(|how| can(*how)) {
        let tally = Tally::attach(how, FUNCTION).unwrap_or_else(|error| panic!("{how:?}: {error}"));
        assert_ne!(there(), NOBODY, "{how:?} is seen there");
        let before = tally.counts().expect("counts");
        call();
        let counted = tally.counts().expect("counts").since(before);
        assert_eq!(counted.hits, CALLS, "{how:?}");
        assert_eq!(counted.missed.unwrap_or(0), 0, "{how:?}");
        drop(tally);
        assert_eq!(events(), 0, "{how:?}");
        assert_eq!(there(), NOBODY, "{how:?}");
    }
}

#[test]
fn a_function_that_is_not_there_is_told() {
    if !require::host() {
        return;
    }
    for how in HOWS.into_iter().filter(|how| can(*how)) {
        let error = Tally::attach(how, "no_such_function").err().expect("none");
        assert!(error.to_string().contains("no_such_function"), "{error}");
    }
}
