//! Counters: each event is counted once, on a tracepoint that nobody else comes by and on a function; what is
//! known to take a microsecond takes one. What this kernel lacks is skipped, with the reason.

mod require;

use std::{fs, time::Instant};

use bpfcost_bpf::attach::{Counter, How, Work, attached_at};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};

const EVENTS: u64 = 100;

/// A score that is written anew.
const TRACEPOINT: &str = "oom:oom_score_adj_update";
const FUNCTION: &str = match cfg!(target_arch = "aarch64") {
    true => "__arm64_sys_flock",
    false => "__x64_sys_flock",
};

const ON_TRACEPOINTS: [How; 3] = [How::Tracepoint, How::RawTp, How::TpBtf];
const ON_FUNCTIONS: [How; 7] = [
    How::Kprobe,
    How::KprobeInt3,
    How::KprobeMulti,
    How::Kretprobe { maxactive: 4 },
    How::KretprobeMulti,
    How::Fentry,
    How::Fexit,
];

/// Whether this kernel can have it; says why not.
fn can(how: How, work: Work) -> bool {
    for feature in Counter::needs(how, work) {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{how:?}: {missing}"));
            return false;
        }
    }
    true
}

fn make_events(how: How) {
    if how.takes_tracepoints() {
        let score = "/proc/self/oom_score_adj";
        let same = fs::read_to_string(score).expect("a score");
        for _ in 0..EVENTS {
            fs::write(score, same.trim()).expect("the score that it has");
        }
        return;
    }
    let file = memfd_create("calls", MemfdFlags::CLOEXEC).expect("a file");
    for _ in 0..EVENTS {
        flock(&file, FlockOperation::Unlock).expect("nobody holds it");
    }
}

/// What [`there`] answers where nobody is.
const NOBODY: [String; 0] = [];

/// Who is attached to the function.
fn there() -> Vec<String> {
    attached_at(FUNCTION).expect("the lists can be read")
}

/// Events of this tool in tracefs, where it is mounted.
fn left_in_tracefs() -> usize {
    let list = fs::read_to_string("/sys/kernel/tracing/kprobe_events").unwrap_or_default();
    list.lines()
        .filter(|line| line.contains(":bpfcost/"))
        .count()
}

fn event(how: How) -> &'static str {
    match how.takes_tracepoints() {
        true => TRACEPOINT,
        false => FUNCTION,
    }
}

/// One test, for events of one must not be counted in another.
#[test]
fn each_event_is_counted_once_and_only_while_it_is_attached() {
    if !require::host() {
        return;
    }
    for how in ON_TRACEPOINTS.into_iter().chain(ON_FUNCTIONS) {
        for work in [Work::Null, Work::Map, Work::Calls]
            .into_iter()
            .filter(|work| can(how, *work))
        {
            let mut counter = Counter::load(how, event(how), work)
                .unwrap_or_else(|error| panic!("{how:?}: {error}"));
            for window in 0..2 {
                make_events(how);
                counter
                    .attach()
                    .unwrap_or_else(|error| panic!("{how:?}: {error}"));
                if !how.takes_tracepoints() {
                    assert_ne!(there(), NOBODY, "{how:?} is seen there");
                }
                make_events(how);
                let counted = counter.detach().expect("counts");
                assert_eq!(counted.strangers, 0, "{how:?} {work:?}");
                assert_eq!(counted.hits, EVENTS, "{how:?} {work:?}, window {window}");
                assert_eq!(counted.missed.unwrap_or(0), 0, "{how:?} {work:?}");
            }
            make_events(how);
            assert!(counter.detach().is_err(), "{how:?}: it is off already");
            assert_eq!(there(), NOBODY, "{how:?}");
            assert_eq!(left_in_tracefs(), 0, "{how:?}");
        }
    }
    busy_events_take_their_time();
}

/// Timing decides nothing here but what can't be faster: so many spells last at least as long.
fn busy_events_take_their_time() {
    let work = Work::Busy { ns: 100_000 };
    if !can(How::RawTp, work) {
        return;
    }
    let mut counter = Counter::load(How::RawTp, TRACEPOINT, work).expect("loaded");
    counter.attach().expect("attached");
    let begun = Instant::now();
    make_events(How::RawTp);
    let took = begun.elapsed();
    let counted = counter.detach().expect("counts");
    assert_eq!(counted.hits, EVENTS);
    // A tenth is left for what a spell takes beside its waiting.
    assert!(counted.busy_ns >= EVENTS * 90_000, "{counted:?}");
    assert!(
        took.as_nanos() >= counted.busy_ns.into(),
        "{took:?}, {counted:?}"
    );
}

#[test]
fn an_event_that_is_not_there_is_told() {
    if !require::host() {
        return;
    }
    let name = |how: How| match how.takes_tracepoints() {
        true => "oom:no_such_event",
        false => "no_such_event",
    };
    for how in ON_TRACEPOINTS.into_iter().chain(ON_FUNCTIONS) {
        if !can(how, Work::Null) {
            continue;
        }
        let error = Counter::load(how, name(how), Work::Null)
            .and_then(|mut counter| counter.attach())
            .expect_err("there is none");
        assert!(
            error.to_string().contains("no_such_event"),
            "{how:?}: {error}"
        );
        eprintln!("{error}");
    }
}

#[test]
fn a_system_call_of_its_own_is_no_raw_tracepoint_and_this_is_told() {
    if !require::host() || !can(How::RawTp, Work::Null) {
        return;
    }
    let error = Counter::load(How::RawTp, "syscalls:sys_enter_read", Work::Null)
        .and_then(|mut counter| counter.attach())
        .expect_err("there is none");
    assert!(
        error.to_string().contains("raw_syscalls:sys_enter"),
        "{error}"
    );
}
