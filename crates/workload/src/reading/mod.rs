//! Readers of the output of load generators, one file each.
//!
//! To add one: a file here with `read(client, printed)`, and its line in [`Reading::parse`].

mod iperf3;
mod load;
mod redis_benchmark;
pub(super) mod text;
mod wrk;

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Client, Output};

/// What a client's output says of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Operations done.
    pub ops: u64,
    /// The same where it is no whole number: seconds stand for operations.
    pub exact: Option<f64>,
    /// Seconds that they took, where the client reports it: without its start and end, which are no load.
    pub seconds: Option<f64>,
    /// Latencies by percentile, in microseconds: `p10`, `p25`, `p50`, `p75`, `p90`, `p95`, `p99`, `p999`, `max`.
    pub latency_us: BTreeMap<String, f64>,
    /// Further counts by name: `bytes`, `errors`, `lost`.
    pub counts: BTreeMap<String, f64>,
    /// Runs of the client that this is of, where there were several.
    #[serde(default)]
    pub runs: u32,
}

/// The longest of all operations, among latencies.
pub const LONGEST: &str = "max";
/// Numbers among the counts that are shares or spans of time: of several runs, their mean is told.
const MEANS: [&str; 2] = ["jitter_ms", "late"];

impl Reading {
    /// What a cost is divided by.
    pub fn ops(&self) -> f64 {
        self.exact.unwrap_or(self.ops as f64)
    }

    /// The reading of several runs of a client in one window: the sum of operations and of counts, the longest of
    /// all operations, and the mean of each other percentile, for those of all operations together are not known.
    pub fn together(runs: &[Reading]) -> Self {
        let mut all = Reading {
            ops: (runs.iter()).fold(0, |all, run| all.saturating_add(run.ops)),
            seconds: runs.iter().map(|run| run.seconds).sum(),
            runs: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            ..Reading::default()
        };
        let share = 1.0 / runs.len() as f64;
        for run in runs {
            for (name, latency) in &run.latency_us {
                let together = all.latency_us.entry(name.clone()).or_default();
                *together = match name.as_str() {
                    LONGEST => together.max(*latency),
                    _ => *together + latency * share,
                };
            }
            for (name, count) in &run.counts {
                let mean = MEANS.contains(&name.as_str());
                *all.counts.entry(name.clone()).or_default() +=
                    if mean { count * share } else { *count };
            }
        }
        all
    }

    /// A count of one run of the client.
    pub fn a_run(&self, count: f64) -> f64 {
        count / f64::from(self.runs.max(1))
    }

    /// Reads what that client printed.
    pub fn parse(client: &Client, printed: &str) -> Result<Self> {
        let mut reading = match client.output {
            Output::Iperf3 => iperf3::read(printed)?,
            Output::Load => load::read(printed)?,
            Output::RedisBenchmark => redis_benchmark::read(printed)?,
            Output::Wrk => wrk::read(printed)?,
            Output::Text => text::read(client, printed)?,
        };
        if let Some(ops) = client.ops {
            reading.ops = ops;
        }
        Ok(reading)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ops: u64, latencies: &[(&str, f64)], counts: &[(&str, f64)]) -> Reading {
        let named = |all: &[(&str, f64)]| {
            let all = all.iter();
            all.map(|(name, value)| ((*name).to_owned(), *value))
                .collect()
        };
        Reading {
            ops,
            seconds: Some(0.25),
            latency_us: named(latencies),
            counts: named(counts),
            ..Reading::default()
        }
    }

    #[test]
    fn of_several_runs_the_longest_operation_and_all_counts_are_told() {
        let stalled = run(
            10,
            &[("p50", 60.0), ("p99", 900.0), ("max", 200_000.0)],
            &[("bytes", 30.0), ("late", 0.5)],
        );
        let usual = run(
            30,
            &[("p50", 40.0), ("p99", 100.0), ("max", 700.0)],
            &[("bytes", 90.0), ("late", 0.1)],
        );
        for runs in [[stalled.clone(), usual.clone()], [usual, stalled]] {
            let together = Reading::together(&runs);
            assert_eq!((together.ops, together.seconds), (40, Some(0.5)));
            let latency = |name: &str| together.latency_us[name];
            assert_eq!(latency("max"), 200_000.0);
            assert_eq!([latency("p50"), latency("p99")], [50.0, 500.0]);
            assert_eq!(together.counts["bytes"], 120.0);
            assert_eq!(together.counts["late"], 0.3);
            assert_eq!(together.a_run(120.0), 60.0);
        }
        let most = run(u64::MAX, &[], &[]);
        assert_eq!(Reading::together(&[most.clone(), most]).ops, u64::MAX);
        let single = run(10, &[("max", 5.0)], &[]);
        assert_eq!(Reading::together(&[single]).a_run(7.0), 7.0);
    }
}
