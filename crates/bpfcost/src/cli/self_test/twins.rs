//! A/A runs: each case against itself, loaded apart.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::select;
use crate::builtin::{aa::AaTest, safeguards};
use bpfcost_measure::{self, Measurements, Monotonic, Plan, Stop};
use bpfcost_model::Experiment;
use bpfcost_record::{Record, Status};
use bpfcost_target::Host;

/// The experiment that is run against itself, and its cases: short and long paths, one that is all
/// cache misses.
pub(super) const EXPERIMENT: &str = "xdp-lb";
const CASES: [&str; 4] = [
    "tcp-v4-lru-hit",
    "tcp-v4-ch-diverse",
    "tcp-v4-lru-miss",
    "pass-v4-no-vip",
];

/// Batches of an A/A run, in nanoseconds: shorter than a run's, so that there can be many.
const BATCH_NS: f64 = 2e6;

/// Measures one A/A run; `None` if it was interrupted.
pub(super) fn measure(
    host: &Host,
    cpu: u32,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Option<Record>> {
    let experiment = AaTest::new(select::experiment(EXPERIMENT)?, &CASES);
    let plan = Plan {
        // A series of its own among the kept sessions: its batches are not those of a run.
        experiment: "self-test".to_owned(),
        target: "host".into(),
        seed,
        cases: experiment.cases(),
        pairs: experiment.pairs(),
        cpus: vec![cpu],
        quick: true,
        goal_ns: BATCH_NS,
        ..Plan::new(experiment.description())
    };
    let empty = Measurements::new(&plan);
    let started = bpfcost_record::now();
    let clock = Monotonic::start();
    let measured = bpfcost_measure::measure(
        &experiment,
        &safeguards::sentinel,
        &plan,
        &clock,
        interrupted,
        empty,
        &mut |_| Ok(()),
    )?;
    if measured.stop == Some(Stop::Interrupted) {
        return Ok(None);
    }
    let record = Record::build(&plan, &measured, &started, host.machine());
    let mut invalid = record.cases.iter();
    if let Some(case) = invalid.find(|case| case.status == Status::Invalid) {
        anyhow::bail!("{} is invalid: {}", case.name, case.problems[0]);
    }
    Ok(Some(record))
}
