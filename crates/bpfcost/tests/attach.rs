//! Every way to attach that this host has: each case proves itself, and nothing is left behind.

#[path = "common/held.rs"]
mod held;
#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bpfcost::builtin::{attach::AttachTypes, uprobe_threads::UprobeThreads};
use bpfcost_bpf::{Space, attach::Attach, stats::StatsOn};
use bpfcost_model::{Batch, Case, Experiment, Fault, LoadedEpoch, Problem, Setup, Trial};
use bpfcost_uprobe::mount::MountedFs;

use crate::held::{held, settled};

/// Enough for the sets of 64 in which frames come.
const BATCH: Batch = Batch(256);

fn setup(wanted: impl Fn(&Case) -> bool) -> Setup {
    let supported = |case: &Case| {
        let reason = AttachTypes.unsupported(case).expect("an answer");
        reason.is_none()
    };
    let cases = AttachTypes.cases().into_iter();
    Setup {
        cases: cases
            .filter(|case| wanted(case) && supported(case))
            .collect(),
        cpus: bpfcost_bpf::allowed_cpus().into_iter().take(1).collect(),
        seed: 7,
        epoch: 0,
        exact: false,
    }
}

fn is(names: &[&str]) -> impl Fn(&Case) -> bool {
    let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
    move |case| names.contains(&case.name)
}

#[track_caller]
fn trial(epoch: &mut dyn LoadedEpoch, case: &Case) -> Trial {
    let trial = epoch.prepare(case).and_then(|()| epoch.trial(case, BATCH));
    trial.unwrap_or_else(|fault| panic!("{}: {fault:?}", case.name))
}

fn invalid(result: Result<Trial, Fault>) -> Problem {
    match result {
        Err(Fault::Invalid(problem)) => problem,
        other => panic!("it should be invalid: {other:?}"),
    }
}

/// One test at a time: they would see each other at the same events.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_case_proves_itself_and_leaves_nothing() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let before = held();
    let setup = setup(|_| true);
    let ways: BTreeSet<&str> = setup
        .cases
        .iter()
        .filter_map(|case| case.factors.get("attach").map(String::as_str))
        .collect();
    println!("{} cases, attached by {ways:?}", setup.cases.len());
    // What needs nothing but a kernel that runs this test at all.
    for way in [
        "raw_tp",
        "tp_btf",
        "perf_event",
        "xdp-generic",
        "cgroup_skb",
    ] {
        assert!(ways.contains(way), "{way} is not among {ways:?}");
    }
    let mut epoch = AttachTypes.load(&setup).expect("load");
    for case in &setup.cases {
        let trial = trial(&mut *epoch, case);
        assert!(trial.ops >= BATCH.0, "{}: {trial:?}", case.name);
        assert!(trial.value > 0.0, "{}: {trial:?}", case.name);
        let account = trial.secondary.get("kernel_ns");
        assert_eq!(
            account.is_some_and(|ns| *ns > 0.0),
            case.name.ends_with("/stats"),
            "{}: {trial:?}",
            case.name
        );
    }
    epoch.unload().expect("unload");
    // What was there before may go meanwhile: the kernel frees what other tests left behind their backs.
    let left = || &held() - &before;
    settled(|| left().is_empty());
    assert_eq!(left(), BTreeSet::new());
}

/// Any tool that has loaded a program that prints leaves the tracepoint on. It is off for those cases, and as before then.
#[test]
fn the_tracepoint_of_printk_may_be_on() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let setup = setup(is(&["none/printk", "raw_tp-printk/empty"]));
    if setup.cases.is_empty() {
        return require::skip_as("features", "this kernel has a better event, the kfunc");
    }
    let switch = PrintkSwitch::set("1");
    let mut epoch = AttachTypes.load(&setup).expect("load");
    for case in &setup.cases {
        trial(&mut *epoch, case);
    }
    epoch.unload().expect("unload");
    assert_eq!(switch.state(), "1", "it is not as it was");
}

/// The tracepoint's state, put back when this is dropped.
struct PrintkSwitch {
    tracefs: MountedFs,
    before: String,
}

impl PrintkSwitch {
    fn set(state: &str) -> Self {
        let mut switch = PrintkSwitch {
            tracefs: MountedFs::ask("tracefs").expect("tracefs"),
            before: String::new(),
        };
        switch.before = switch.state();
        fs::write(switch.path(), state).expect("tracefs");
        switch
    }

    fn path(&self) -> PathBuf {
        self.tracefs
            .path("events/bpf_trace/bpf_trace_printk/enable")
    }

    fn state(&self) -> String {
        let state = fs::read_to_string(self.path()).expect("its state");
        state.trim().to_owned()
    }
}

impl Drop for PrintkSwitch {
    fn drop(&mut self) {
        let _ = fs::write(self.path(), &self.before);
    }
}

/// A program of ours must not see what that of another case does at an event.
#[test]
fn one_program_is_attached_at_a_time() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let setup = setup(is(&["raw_tp/empty", "tp_btf/empty", "none/kfunc"]));
    let mut epoch = AttachTypes.load(&setup).expect("load");
    // Each proves that it alone ran: hits equal events, whatever ran before.
    for _ in 0..3 {
        for case in &setup.cases {
            trial(&mut *epoch, case);
        }
    }
}

/// Another process's bpf_stats would be in the cost of cases without.
#[test]
fn bpf_stats_of_somebody_else_is_seen() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let setup = setup(is(&["raw_tp/empty", "raw_tp/empty/stats"]));
    let mut epoch = AttachTypes.load(&setup).expect("load");
    let _bpftop = StatsOn::start().expect("bpf_stats");
    let [off, on] = &setup.cases[..] else {
        panic!("{:?}", setup.cases);
    };
    let problem = invalid(epoch.trial(off, BATCH));
    assert_eq!(problem.check, "runs that bpf_stats counted");
    assert_eq!((&*problem.expected, &*problem.got), ("0", "256"));
    trial(&mut *epoch, on);
}

/// Two at once: the second sees the first one at its events, and measures nothing that holds both.
#[test]
fn somebody_else_at_the_same_events_is_seen() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let setup = setup(is(&["raw_tp/empty", "perf_event/empty"]));
    let [tracepoint, faults] = &setup.cases[..] else {
        panic!("{:?}", setup.cases);
    };
    let mut first = AttachTypes.load(&setup).expect("load");
    trial(&mut *first, tracepoint);
    let mut second = AttachTypes.load(&setup).expect("load");
    let problem = invalid(second.trial(tracepoint, BATCH));
    assert_eq!(problem.check, "nothing else attached", "{problem:?}");
    // Page faults are each thread's own.
    trial(&mut *second, faults);
}

/// Many threads at one function: each trial counts every call.
#[test]
fn every_number_of_threads_proves_itself() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let cpus = bpfcost_bpf::allowed_cpus();
    let mut threads = UprobeThreads::default();
    threads.on_cpus(&cpus);
    let cases = threads.cases().into_iter();
    let supported = |case: &Case| threads.unsupported(case).expect("an answer").is_none();
    let setup = Setup {
        cases: cases.filter(supported).collect(),
        cpus,
        seed: 7,
        epoch: 0,
        exact: false,
    };
    let mut epoch = threads.load(&setup).expect("load");
    for case in &setup.cases {
        let trial = trial(&mut *epoch, case);
        let threads: f64 = case.factors["threads"].parse().expect("a number");
        let rate = trial.secondary["calls_per_s"];
        let expected = threads * 1e9 / trial.value;
        assert!(
            (rate / expected - 1.0).abs() < 1e-9,
            "{}: {trial:?}",
            case.name
        );
    }
}

#[test]
fn every_way_has_cases() {
    let cases = AttachTypes.cases();
    for attach in Attach::ALL {
        let own =
            |case: &&Case| case.factors.get("attach").map(String::as_str) == Some(attach.name());
        // Six bodies, and in the kernel two of them with bpf_stats.
        let expected = match attach.space() {
            Space::Kernel => 8,
            Space::User => 6,
        };
        assert_eq!(cases.iter().filter(own).count(), expected, "{attach}");
    }
}
