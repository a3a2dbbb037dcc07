//! The load of one window: a client that runs to its end, and what its output says.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{Client, Output, Process, Scene, process::told, server::tail};

/// How much longer than a window a client may take, before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client's output says of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Operations done.
    pub ops: u64,
    /// Latencies by percentile, in microseconds: `p50`, `p99`, `max`.
    pub latency_us: BTreeMap<String, f64>,
    /// Further counts by name: `bytes`, `errors`, `lost`.
    pub counts: BTreeMap<String, f64>,
}

/// A client of a workload.
#[derive(Debug)]
pub struct Load<'a> {
    client: &'a Client,
}

impl<'a> Load<'a> {
    /// That client.
    pub fn of(client: &'a Client) -> Self {
        Load { client }
    }

    /// Makes the load of one window; how long it took, and what came of it.
    pub fn run(&self, scene: &Scene) -> Result<(Duration, Reading)> {
        let command = scene.command(&self.client.command)?;
        let begun = Instant::now();
        let mut process = Process::start(&command, &scene.client_cpus, &[])?;
        let status = process.wait(Duration::from_millis(scene.window_ms) + PATIENCE)?;
        let took = begun.elapsed();
        let printed = process.printed()?;
        if !status.success() {
            bail!(
                "the client {} {}\n{}",
                command.join(" "),
                told(status),
                tail(&printed)
            );
        }
        let reading = read(self.client, &printed).with_context(|| {
            format!(
                "reading what {} printed:\n{}",
                command.join(" "),
                tail(&printed)
            )
        })?;
        Ok((took, reading))
    }
}

/// What a client's output says.
fn read(client: &Client, printed: &str) -> Result<Reading> {
    match client.output {
        Output::RedisBenchmark => redis_benchmark(client, printed),
        other => bail!("no reader of {other:?} yet"),
    }
}

/// A header and a line a test: "test","rps","avg_latency_ms","min_…","p50_…","p95_…","p99_…","max_…".
fn redis_benchmark(client: &Client, printed: &str) -> Result<Reading> {
    let mut rows = csv::Reader::from_reader(printed.as_bytes());
    let row: BTreeMap<String, String> = rows.deserialize().next().context("it has no row")??;
    let number = |name: &str| -> Result<f64> {
        Ok(row
            .get(name)
            .with_context(|| format!("there is no {name}"))?
            .parse()?)
    };
    let latency_us = ["p50", "p95", "p99", "max"]
        .into_iter()
        .map(|name| {
            Ok((
                name.to_owned(),
                1e3 * number(&format!("{name}_latency_ms"))?,
            ))
        })
        .collect::<Result<_>>()?;
    Ok(Reading {
        ops: client.ops.context("its definition names no ops")?,
        latency_us,
        counts: BTreeMap::new(),
    })
}
