//! Readers of the output of load generators, one file each.
//!
//! To add one: a file here with `read(client, printed)`, and its line in [`Reading::of`].

mod iperf3;
mod load;
mod redis_benchmark;
pub(super) mod text;
mod wrk;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
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
}

impl Reading {
    /// What a cost is divided by.
    pub fn ops(&self) -> f64 {
        self.exact.unwrap_or(self.ops as f64)
    }

    /// The reading of several runs of a client in one window: the sum of operations, the mean of everything else.
    pub(super) fn together(runs: &[Reading]) -> Self {
        let mean = |counts: fn(&Reading) -> &BTreeMap<String, f64>| {
            let mut means = BTreeMap::new();
            for (name, value) in runs.iter().flat_map(counts) {
                *means.entry(name.clone()).or_default() += value / runs.len() as f64;
            }
            means
        };
        Reading {
            ops: runs.iter().map(|run| run.ops).sum(),
            exact: None,
            seconds: runs.iter().map(|run| run.seconds).sum(),
            latency_us: mean(|run| &run.latency_us),
            counts: mean(|run| &run.counts),
        }
    }

    /// Reads what that client printed.
    pub(super) fn of(client: &Client, printed: &str) -> Result<Self> {
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
        if reading.ops == 0 {
            bail!("it did 0 operations, so there is no cost per operation");
        }
        Ok(reading)
    }
}
