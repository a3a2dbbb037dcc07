//! `attaching` on this host: each mechanism attaches at as many sites as it should, and leaves nothing.

#[path = "common/held.rs"]
mod held;
#[path = "../../bpf/tests/require/mod.rs"]
mod require;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bpfcost::builtin::attaching::Attaching;
use bpfcost_model::{Batch, Case, Experiment, Fault, Setup, Trial};

use crate::held::{held, settled};

/// One site, and more than one link.
const SITES: &str = "1,3";

/// One test at a time: what one leaves for a moment, another would see.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The cases that this kernel has.
fn setup(experiment: &Attaching) -> Setup {
    let supported = |case: &Case| experiment.unsupported(case).expect("an answer").is_none();
    Setup {
        cases: experiment.cases().into_iter().filter(supported).collect(),
        cpus: bpfcost_bpf::allowed_cpus(),
        seed: 7,
        epoch: 0,
        exact: false,
    }
}

fn factor<'a>(case: &'a Case, name: &str) -> &'a str {
    &case.factors[name]
}

/// A trial of each case.
fn trials(mut experiment: Attaching) -> Vec<(Case, Result<Trial, Fault>)> {
    experiment.set("sites", SITES).expect("it can be set");
    let setup = setup(&experiment);
    let mut epoch = experiment.load(&setup).expect("load");
    let trial = |case: &Case| {
        epoch.prepare(case)?;
        epoch.trial(case, Batch(1))
    };
    let trials = setup.cases.iter().map(trial).collect::<Vec<_>>();
    epoch.unload().expect("unload");
    setup.cases.into_iter().zip(trials).collect()
}

#[test]
fn every_mechanism_attaches_at_all_sites_and_leaves_nothing() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let before = held();
    let trials = trials(Attaching::default());
    for mechanism in ["uprobe", "uprobe.multi", "tracepoint", "tcx", "xdp"] {
        let sites = trials
            .iter()
            .filter(|(case, _)| factor(case, "mechanism") == mechanism);
        assert_eq!(sites.count(), 2, "{mechanism} is not measured here");
    }
    let cpus = bpfcost_bpf::allowed_cpus().len();
    for (case, trial) in trials {
        let trial = trial.unwrap_or_else(|fault| panic!("{}: {fault:?}", case.name));
        assert_eq!(trial.ops.to_string(), factor(&case, "sites"));
        assert!(trial.value > 0.0, "{}: {trial:?}", case.name);
        for name in ["load_ns", "detach_ns"] {
            assert!(trial.secondary[name] > 0.0, "{}: {trial:?}", case.name);
        }
        for name in ["attach_stop_us", "detach_stop_us", "idle_stop_us"] {
            let stop = trial.secondary.get(name);
            let watched = stop.is_some_and(|stop| *stop > 0.0);
            assert_eq!(watched, cpus > 1, "{}: {trial:?}", case.name);
        }
        assert!(trial.secondary.contains_key("kernel_bytes"), "{trial:?}");
    }
    let left = || &held() - &before;
    settled(|| left().is_empty());
    assert!(left().is_empty(), "left behind: {:?}", left());
}

#[test]
fn a_site_that_is_not_attached_is_found() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    for (case, trial) in trials(Attaching::faulty()) {
        match trial {
            Err(Fault::Invalid(problem)) => {
                assert_eq!(problem.check, "sites attached", "{}", case.name);
                assert_eq!(problem.expected, factor(&case, "sites"), "{}", case.name);
            }
            other => panic!("{} should be invalid: {other:?}", case.name),
        }
    }
}
