//! The experiment that ARCHITECTURE.md shows, run as it stands there: it has every safeguard, without a line for one.

#[path = "../../../bpf/tests/require/mod.rs"]
mod require;

// As it stands in an experiment.
#[allow(unreachable_pub)]
mod example;

use std::{fs, path::Path, sync::atomic::AtomicBool};

use bpfcost::builtin::{
    safeguards,
    timed::{TimedCases, TimedEpoch},
};
use bpfcost_bpf::{
    timed::{OpenObject, TimedObject},
    timing::{Loop, Observation, Request},
};
use bpfcost_measure::{Measurements, Monotonic, Plan};
use bpfcost_model::{Case, Description, Experiment, Fault, LoadedEpoch, Pair, Setup, Waivers};
use bpfcost_record::{Machine, Record, Status};
use bpfcost_target::Host;
use example::Example;

/// The sketch's object, which runs an operation less than asked in each batch; with these waivers.
#[derive(Default)]
struct Varied {
    missing_ops: u64,
    waivers: Waivers,
}

impl Experiment for Varied {
    fn description(&self) -> Description {
        Description {
            waivers: self.waivers.clone(),
            ..Example.description()
        }
    }

    fn cases(&self) -> Vec<Case> {
        Example.cases()
    }

    fn pairs(&self) -> Vec<Pair> {
        Example.pairs()
    }

    fn load(&self, setup: &Setup) -> anyhow::Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || {
            let mut open = OpenObject::open("example", Loop::probe()?)?;
            open.time("example")?;
            Ok(Short(open.load()?, self.missing_ops))
        })
    }
}

struct Short(TimedObject, u64);

impl TimedCases for Short {
    type Batch = Vec<Observation>;

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<Self::Batch, Fault> {
        let request = Request {
            ops: request.ops - self.1,
            ..*request
        };
        Ok(self.0.batch(&case.name, &request, &[vec![0; 64]])?)
    }

    fn check(&mut self, _: &Case, _: &Request<'_>, _: &Self::Batch) -> Result<(), Fault> {
        Ok(())
    }

    fn has_reset(&self, _: &Case) -> bool {
        false
    }
}

/// The record of a short run.
fn record(experiment: &dyn Experiment) -> Record {
    let plan = Plan {
        target: "host".into(),
        seed: 7,
        cases: experiment.cases(),
        pairs: experiment.pairs(),
        cpus: vec![bpfcost_bpf::allowed_cpus()[0]],
        quick: true,
        goal_ns: 1e5,
        ..Plan::new(experiment.description())
    };
    let measured = bpfcost_measure::measure(
        experiment,
        &safeguards::sentinel,
        &plan,
        &Monotonic::start(),
        &AtomicBool::new(false),
        Measurements::new(&plan),
        &mut |_| Ok(()),
    );
    let machine = Machine {
        programs: safeguards::programs(experiment).expect("the kernel answers"),
        ..Host::default().machine()
    };
    let measured = measured.expect("it is measured");
    Record::build(&plan, &measured, "2026-11-01T00:00:00Z", machine)
}

#[test]
fn the_page_shows_the_experiment_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../ARCHITECTURE.md")).expect("the page");
    let file = fs::read_to_string(root.join("tests/sketch/example.rs")).expect("the experiment");
    assert!(
        page.contains(&format!("```rust\n{file}```\n")),
        "ARCHITECTURE.md does not show tests/sketch/example.rs as it is"
    );
}

#[test]
fn the_record_has_every_safeguard() {
    if !require::host() {
        return;
    }
    let record = record(&Example);
    let [case] = &record.cases[..] else {
        panic!("{:?}", record.cases)
    };
    assert_eq!(case.status, Status::Ok, "{:?}", case.problems);
    let programs = record.machine.programs.as_deref().unwrap_or_default();
    assert!(
        programs.starts_with(&format!("build {}, ", bpfcost_bpf::BUILD)),
        "{programs}"
    );
    assert!(record.spread.sentinel.is_some_and(|ns| ns > 0.0));
    assert!(record.spread.sentinel_drift.is_some());
    let twice = &case.secondary["reset_twice"];
    assert_eq!(twice.len(), case.samples.len());
    assert!(record.waivers.is_empty());
}

#[test]
fn a_batch_with_one_operation_fewer_is_invalid() {
    if !require::host() {
        return;
    }
    let short = Varied {
        missing_ops: 1,
        ..Varied::default()
    };
    let record = record(&short);
    let case = &record.cases[0];
    assert_eq!(case.status, Status::Invalid);
    let problem = &case.problems[0];
    assert_eq!(problem.check, "operations");
    let [expected, got] = [&problem.expected, &problem.got].map(|ops| ops.parse::<u64>());
    assert_eq!(expected.ok(), got.ok().map(|ops| ops + 1), "{problem:?}");
}

#[test]
fn what_is_given_up_is_in_the_record_with_the_reason() {
    if !require::host() {
        return;
    }
    let waivers = Waivers {
        sentinel: Some("its level is known".into()),
        programs: Some("they are those of a hash".into()),
    };
    let without = Varied {
        waivers: waivers.clone(),
        ..Varied::default()
    };
    let record = record(&without);
    assert_eq!(record.cases[0].status, Status::Ok);
    assert_eq!(record.waivers, waivers);
    assert_eq!(
        (record.spread.sentinel, record.machine.programs),
        (None, None)
    );
}
