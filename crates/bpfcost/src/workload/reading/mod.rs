//! What a load generator's output says of a window: one reader for each of them.
//!
//! To add one: a file here with `read(client, printed)`, and its line in [`Reading::of`].

mod iperf3;
mod load;
mod redis_benchmark;
mod text;
mod wrk;

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::{Client, Output};

/// What a client's output says of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Operations done.
    pub ops: u64,
    /// Seconds that they took, where the client tells: without its start and end, which are no load.
    pub seconds: Option<f64>,
    /// Latencies by percentile, in microseconds: `p50`, `p90`, `p95`, `p99`, `p999`, `max`.
    pub latency_us: BTreeMap<String, f64>,
    /// Further counts by name: `bytes`, `errors`, `lost`.
    pub counts: BTreeMap<String, f64>,
}

impl Reading {
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
            bail!("it did 0 operations, so there is nothing to divide a cost by");
        }
        Ok(reading)
    }
}
