//! A/A runs: each case against itself, loaded apart.

use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use bpfcost_stats::{Estimate, estimate::Interval, sessions::Session};
use jiff::Timestamp;

use super::select;
use crate::{
    builtin::aa::AaTest,
    experiment::Experiment,
    measure::{self, Measurements, Monotonic, Plan, Stop},
    record::{Record, Status, VerdictRecord},
    target::Host,
};

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

/// What an A/A run says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TwinSession {
    /// Each case's cost, in this session.
    pub(super) levels: Vec<Session>,
    /// Each case against itself.
    pub(super) twins: Vec<Twins>,
}

/// A case against itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Twins {
    /// The case's name.
    pub(super) case: String,
    /// The 95 % interval of their relative difference.
    pub(super) interval: Interval,
    /// The estimate, where the run says that they differ.
    pub(super) alarm: Option<f64>,
}

/// Measures one A/A run; `None` if it was interrupted.
pub(super) fn measure(
    host: &Host,
    cpu: u32,
    seed: u64,
    interrupted: &AtomicBool,
) -> Result<Option<Record>> {
    let experiment = AaTest::of(select::experiment(EXPERIMENT)?, &CASES);
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
        ..Plan::of(experiment.description())
    };
    let empty = Measurements::new(&plan);
    let started = Timestamp::now().to_string();
    let clock = Monotonic::start();
    let measured = measure::measure(&experiment, &plan, &clock, interrupted, empty, &mut |_| {
        Ok(())
    })?;
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

impl TwinSession {
    /// What a record of an A/A run says.
    pub(super) fn of(record: &Record) -> Result<Self> {
        let began: Timestamp = record.started.parse().context("the time of a run")?;
        let level = |name: &&str| {
            let raw = record.case(name)?.raw.as_ref()?;
            let [low, high] = raw.ci95?;
            Some(Session {
                began_s: began.as_second() as f64,
                estimate: Estimate {
                    value: raw.value,
                    low,
                    high,
                },
            })
        };
        let twins = record.comparisons.iter().filter_map(|one| {
            let [low, high] = one.relative_ci95?;
            let alarm = matches!(one.verdict, VerdictRecord::Slower | VerdictRecord::Faster);
            Some(Twins {
                case: one.baseline.clone(),
                interval: Interval { low, high },
                alarm: alarm.then_some(one.relative),
            })
        });
        Ok(TwinSession {
            levels: CASES.iter().filter_map(level).collect(),
            twins: twins.collect(),
        })
    }
}
