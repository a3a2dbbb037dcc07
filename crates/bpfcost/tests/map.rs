//! Maps on this host: every case valid, every wrong program caught.

#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use bpfcost::builtin::map::Maps;
use bpfcost_model::{Batch, Case, Experiment, Fault, Problem, Setup};

const BATCH: Batch = Batch(5000);

fn setup(experiment: &Maps, cpus: &[u32], wanted: impl Fn(&Case) -> bool) -> Setup {
    let cases: Vec<Case> = experiment.cases().into_iter().filter(wanted).collect();
    assert!(!cases.is_empty());
    Setup {
        cases,
        cpus: cpus.into(),
        seed: 7,
        epoch: 0,
        exact: false,
    }
}

/// A few trials of each of these cases that this machine supports.
fn all_valid(cpus: &[u32], exact: bool, wanted: impl Fn(&Case) -> bool) {
    let experiment = Maps::default();
    let supported = |case: &Case| {
        let reason = experiment.unsupported(case).expect("the kernel answers");
        wanted(case) && reason.is_none()
    };
    let mut setup = setup(&experiment, cpus, supported);
    setup.exact = exact;
    let mut epoch = experiment.load(&setup).expect("load");
    for case in &setup.cases {
        let invalid = |fault: Fault| -> () { panic!("{}: {fault:?}", case.name) };
        epoch.prepare(case).unwrap_or_else(invalid);
        for _ in 0..3 {
            let trial = epoch.trial(case, BATCH);
            let trial = trial.unwrap_or_else(|fault| panic!("{}: {fault:?}", case.name));
            assert_eq!(trial.ops, BATCH.0, "{}", case.name);
            assert!(trial.value > 0.0, "{}: {trial:?}", case.name);
        }
    }
    epoch.unload().expect("unload");
}

fn small(case: &Case) -> bool {
    !case.slow
}

#[test]
fn all_small_cases_prove_themselves() {
    if require::host() {
        all_valid(&[0], false, small);
    }
}

#[test]
fn so_they_do_with_seeds_of_zero() {
    if require::host() {
        all_valid(&[0], true, |case| small(case) && case.name.contains("-16B"));
    }
}

#[test]
fn large_tables_prove_themselves() {
    if require::host() {
        all_valid(&[0], false, |case| case.name.contains("-1M-16B/"));
    }
}

#[test]
fn several_cpus_prove_themselves() {
    if !require::host() {
        return;
    }
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        require::skip("there is one CPU only");
        return;
    }
    all_valid(&[0, 1], false, |case| {
        small(case) && (case.name.contains("-16B/") || case.name.starts_with("floor/"))
    });
}

/// The problem that the trial of a wrong program finds.
fn problem(name: &str) -> Option<Problem> {
    if !require::host() {
        return None;
    }
    let experiment = Maps { faulty: true };
    let setup = setup(&experiment, &[0], |case| case.name == name);
    let mut epoch = experiment.load(&setup).expect("load");
    match epoch.trial(&setup.cases[0], BATCH) {
        Err(Fault::Invalid(problem)) => Some(problem),
        other => panic!("a wrong program passed: {other:?}"),
    }
}

#[test]
fn a_lookup_of_another_key_is_caught() {
    if let Some(problem) = problem("hash-1k-16B/hit") {
        assert_eq!(problem.check, "sum of values");
    }
}

#[test]
fn a_floor_without_its_key_is_caught() {
    if let Some(problem) = problem("floor/key") {
        assert_eq!(problem.check, "sum of values");
    }
}

#[test]
fn a_write_that_did_not_take_place_is_caught() {
    if let Some(problem) = problem("hash-1k-16B/write") {
        assert_eq!(problem.check, "sum of values");
    }
}

#[test]
fn a_key_that_was_not_deleted_is_caught() {
    if let Some(problem) = problem("hash-1k-16B/insert-delete") {
        assert_eq!(problem.check, "entries left");
        assert_eq!((&*problem.expected, &*problem.got), ("0", "1"));
    }
}

#[test]
fn a_miss_that_does_not_look_at_a_tasks_storage_is_caught() {
    for name in ["task-storage-16B/miss", "task-storage-256B/miss"] {
        if let Some(problem) = problem(name) {
            assert_eq!(problem.check, "misses with storage");
            assert_eq!((&*problem.expected, &*problem.got), ("0", "16"));
        }
    }
}

#[test]
fn a_hit_that_does_not_peek_at_a_bloom_filter_is_caught() {
    if !require::host() {
        return;
    }
    let experiment = Maps { faulty: true };
    let setup = setup(&experiment, &[0], |case| case.name == "bloom-1k-16B/hit");
    let error = experiment.load(&setup).err().expect("it was loaded");
    let expected = "bloom-1k-16B/hit: of 16 peeks at a bloom filter with nothing in it 16 hit";
    assert_eq!(error.to_string(), expected);
}
