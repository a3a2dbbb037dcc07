//! The result of a load.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is recorded as such, in nanoseconds.
const LONGEST_NS: u64 = 600_000_000_000;
/// Percentiles by name.
const PERCENTILES: [(&str, f64); 8] = [
    ("p10", 0.10),
    ("p25", 0.25),
    ("p50", 0.50),
    ("p75", 0.75),
    ("p90", 0.90),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p999", 0.999),
];

/// The result of a load: what `bpfcost load` prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Requests that were sent and answered.
    pub(crate) ops: u64,
    /// Seconds from the time that the first was due to the last answer.
    pub(crate) seconds: f64,
    /// Requests a second that were asked for; absent in a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// The share of requests that were sent more than 1 ms after they were due: no connection was free, or this
    /// program had no CPU.
    pub(crate) late: f64,
    /// Requests that were never sent, for the server was less than half as fast as was asked.
    pub(crate) unsent: u64,
    /// Answers that were refusals.
    pub(crate) errors: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Bytes of all answers, heads included, as the server wrote them (before TLS).
    pub(crate) bytes: u64,
    /// Connections that were opened; more than was asked where the server closed some.
    pub(crate) connections: u64,
    /// Latencies by percentile, in microseconds, from the time that a request was due to the end of its answer.
    pub(crate) latency_us: BTreeMap<String, f64>,
}

/// Latencies as they come.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet. Three digits are kept of each.
    pub(super) fn new() -> Result<Self> {
        Ok(Latencies(Histogram::new_with_bounds(1, LONGEST_NS, 3)?))
    }

    pub(super) fn put(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// By percentile, in microseconds.
    pub(super) fn percentiles(&self) -> BTreeMap<String, f64> {
        let us = |ns: u64| ns as f64 / 1e3;
        let mut all: BTreeMap<String, f64> = PERCENTILES
            .iter()
            .map(|(name, at)| ((*name).to_owned(), us(self.0.value_at_quantile(*at))))
            .collect();
        all.insert("max".to_owned(), us(self.0.max()));
        all
    }
}
