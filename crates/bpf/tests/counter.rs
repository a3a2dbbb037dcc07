//! Counters: each event is counted once, on a tracepoint that no other process hits and on a function; what is
//! known to take a microsecond takes one. What this kernel lacks is skipped, with the reason.

mod require;

use std::{fs, time::Instant};

use bpfcost_bpf::attach::{AttachMethod, Counter, CounterBody, attached_at};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};

const EVENTS: u64 = 100;

/// A score that is written anew.
const TRACEPOINT: &str = "oom:oom_score_adj_update";
const FUNCTION: &str = if cfg!(target_arch = "aarch64") {
    "__arm64_sys_flock"
} else {
    "__x64_sys_flock"
};

const ON_TRACEPOINTS: [AttachMethod; 3] = [
    AttachMethod::Tracepoint,
    AttachMethod::RawTp,
    AttachMethod::TpBtf,
];
const ON_FUNCTIONS: [AttachMethod; 7] = [
    AttachMethod::Kprobe,
    AttachMethod::KprobeInt3,
    AttachMethod::KprobeMulti,
    AttachMethod::Kretprobe { maxactive: 4 },
    AttachMethod::KretprobeMulti,
    AttachMethod::Fentry,
    AttachMethod::Fexit,
];

/// Returns true if this kernel can have it; says why not.
fn can(method: AttachMethod, work: CounterBody) -> bool {
    for feature in Counter::needs(method, work) {
        if let Some(missing) = feature.missing().expect("an answer") {
            require::skip_as("features", format!("{method:?}: {missing}"));
            return false;
        }
    }
    true
}

fn make_events(method: AttachMethod) {
    if method.takes_tracepoints() {
        let score = "/proc/self/oom_score_adj";
        let same = fs::read_to_string(score).expect("a score");
        for _ in 0..EVENTS {
            fs::write(score, same.trim()).expect("the score that it has");
        }
        return;
    }
    let file = memfd_create("calls", MemfdFlags::CLOEXEC).expect("a file");
    for _ in 0..EVENTS {
        flock(&file, FlockOperation::Unlock).expect("it is not locked");
    }
}

/// The answer of [`there`] if nothing is attached.
const NOTHING: [String; 0] = [];

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

fn event(method: AttachMethod) -> &'static str {
    if method.takes_tracepoints() {
        TRACEPOINT
    } else {
        FUNCTION
    }
}

/// One test, for events of one must not be counted in another.
#[test]
fn each_event_is_counted_once_and_only_while_it_is_attached() {
    if !require::host() {
        return;
    }
    for method in ON_TRACEPOINTS.into_iter().chain(ON_FUNCTIONS) {
        for work in [CounterBody::Null, CounterBody::Map, CounterBody::Calls]
            .into_iter()
            .filter(|work| can(method, *work))
        {
            let mut counter = Counter::load(method, event(method), work)
                .unwrap_or_else(|error| panic!("{method:?}: {error}"));
            for window in 0..2 {
                make_events(method);
                counter
                    .attach()
                    .unwrap_or_else(|error| panic!("{method:?}: {error}"));
                if !method.takes_tracepoints() {
                    assert_ne!(there(), NOTHING, "{method:?} is seen there");
                }
                make_events(method);
                let counted = counter.detach().expect("counts");
                assert_eq!(counted.other_hits, 0, "{method:?} {work:?}");
                assert_eq!(counted.hits, EVENTS, "{method:?} {work:?}, window {window}");
                assert_eq!(counted.missed.unwrap_or(0), 0, "{method:?} {work:?}");
            }
            make_events(method);
            assert!(counter.detach().is_err(), "{method:?}: it is off already");
            assert_eq!(there(), NOTHING, "{method:?}");
            assert_eq!(left_in_tracefs(), 0, "{method:?}");
        }
    }
    busy_events_take_their_time();
}

/// Timing decides nothing here but what can't be faster: so many spells last at least as long.
fn busy_events_take_their_time() {
    let work = CounterBody::Busy { ns: 100_000 };
    if !can(AttachMethod::RawTp, work) {
        return;
    }
    let mut counter = Counter::load(AttachMethod::RawTp, TRACEPOINT, work).expect("loaded");
    counter.attach().expect("attached");
    let begun = Instant::now();
    make_events(AttachMethod::RawTp);
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
    let name = |method: AttachMethod| {
        if method.takes_tracepoints() {
            "oom:no_such_event"
        } else {
            "no_such_event"
        }
    };
    for method in ON_TRACEPOINTS.into_iter().chain(ON_FUNCTIONS) {
        if !can(method, CounterBody::Null) {
            continue;
        }
        let error = Counter::load(method, name(method), CounterBody::Null)
            .and_then(|mut counter| counter.attach())
            .expect_err("there is none");
        assert!(
            error.to_string().contains("no_such_event"),
            "{method:?}: {error}"
        );
        eprintln!("{error}");
    }
}

#[test]
fn a_system_call_of_its_own_is_no_raw_tracepoint_and_this_is_told() {
    if !require::host() || !can(AttachMethod::RawTp, CounterBody::Null) {
        return;
    }
    let error = Counter::load(
        AttachMethod::RawTp,
        "syscalls:sys_enter_read",
        CounterBody::Null,
    )
    .and_then(|mut counter| counter.attach())
    .expect_err("there is none");
    assert!(
        error.to_string().contains("raw_syscalls:sys_enter"),
        "{error}"
    );
}
