//! The load of one window: runs a client to its end, and reads its output.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use super::{Client, Error, Output, Reading};
use bpfcost_process::{Capture, Process, RunContext, describe_exit};

/// How much longer than some windows a client may take, before it counts as stuck.
const GRACE: Duration = Duration::from_secs(60);
/// That many windows.
const WINDOWS: u32 = 10;
/// No load is shorter: it would be the start of a program that is measured.
const SHORTEST: Duration = Duration::from_millis(50);

/// How often a client runs within a window before no operations are an error. On a machine that is busy with other things, a
/// client with a time limit may get none done before its time is over.
const IDLE_RUNS: usize = 3;

/// A client of a workload.
#[derive(Debug)]
pub struct LoadClient<'a> {
    client: &'a Client,
}

/// A client that runs.
#[derive(Debug)]
pub struct RunningClient<'a> {
    client: &'a Client,
    process: Process,
    command: String,
    limit: Duration,
    begun: Instant,
    /// CPU time of all children before it, in nanoseconds.
    earlier_ns: f64,
}

/// The result of the load of a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// How long it took: by the client's own clock where it reports that, else from its start to its end.
    pub took: Duration,
    /// What the client says.
    pub reading: Reading,
    /// CPU time of the client, in nanoseconds; `None` where it ran elsewhere.
    pub client_ns: Option<f64>,
}

impl Client {
    /// Whether numbers are read from its output.
    fn is_read(&self) -> bool {
        self.output != Output::Text || !self.metrics.is_empty()
    }

    /// How long one run of it may take in windows of `window_ms` milliseconds, before it counts as stuck.
    pub fn limit(&self, window_ms: u64) -> Duration {
        match self.within_s {
            // One run may be told to last for a window.
            Some(within_s) => {
                let window = Duration::from_millis(window_ms);
                Duration::from_secs_f64(within_s).max(window + GRACE)
            }
            None => WINDOWS * Duration::from_millis(window_ms) + GRACE,
        }
    }

    /// How long what warms the load may take.
    pub fn warm_up_limit(&self, window_ms: u64) -> Duration {
        if self.warm_up.is_empty() {
            self.limit(window_ms)
        } else {
            GRACE
        }
    }
}

impl<'a> LoadClient<'a> {
    /// That client.
    pub fn new(client: &'a Client) -> Self {
        LoadClient { client }
    }

    /// Starts it, to make the load of one window.
    pub fn start(&self, context: &RunContext) -> Result<RunningClient<'a>> {
        let command = context.command(&self.client.command)?;
        let capture = if self.client.is_read() {
            Capture::to_read()
        } else {
            Capture::default()
        };
        let earlier_ns = children_ns()?;
        let begun = Instant::now();
        Ok(RunningClient {
            client: self.client,
            process: Process::start_captured(&command, &context.client_cpus, &[], capture)?,
            command: command.join(" "),
            limit: self.client.limit(context.window_ms),
            begun,
            earlier_ns,
        })
    }

    /// Makes the load of one window.
    pub fn run(&self, context: &RunContext) -> Result<LoadResult> {
        let window = Duration::from_millis(context.window_ms);
        let mut runs: Vec<LoadResult> = Vec::new();
        let took = |runs: &[LoadResult]| runs.iter().map(|run| run.took).sum::<Duration>();
        loop {
            let has_operations = runs.iter().any(|run| run.reading.ops > 0);
            if has_operations && (!self.client.repeat || took(&runs) >= window) {
                break;
            }
            let is_last_try = !has_operations && runs.len() + 1 >= IDLE_RUNS;
            runs.push(self.start(context)?.end(is_last_try)?);
        }
        let took = took(&runs);
        if took < SHORTEST {
            return Err(Error::Definition(format!(
                "the client {} took {:.1} ms; below {} ms, most of it is program startup\n  \
                 Make it do more: more requests, or a longer time",
                context.command(&self.client.command)?.join(" "),
                took.as_secs_f64() * 1e3,
                SHORTEST.as_millis()
            ))
            .into());
        }
        let client_ns = runs.iter().map(|run| run.client_ns).sum();
        // Time without operations counts; latencies of none do not.
        let readings = runs.into_iter().map(|run| run.reading);
        let readings: Vec<Reading> = readings.filter(|reading| reading.ops > 0).collect();
        Ok(LoadResult {
            took,
            client_ns,
            reading: Reading::together(&readings),
        })
    }

    /// Warms what the load needs: by the client's own command for that, else by a window of the load.
    pub fn warm_up(&self, context: &RunContext) -> Result<()> {
        if self.client.warm_up.is_empty() {
            return self.run(context).map(|_| ());
        }
        let command = context.command(&self.client.warm_up)?;
        let mut process = Process::start(&command, &context.client_cpus, &[])?;
        let status = process.wait(self.client.warm_up_limit(context.window_ms))?;
        if status.success() {
            Ok(())
        } else {
            Err(failed(
                &format!(
                    "the warm-up {} {}",
                    command.join(" "),
                    describe_exit(status)
                ),
                &process,
            ))
        }
    }
}

impl RunningClient<'_> {
    /// Waits for its end, and reads what it printed. Where it `must` have done something, no operations are an error.
    pub fn end(mut self, must: bool) -> Result<LoadResult> {
        let command = self.command.clone();
        let status = match self.process.wait(self.limit) {
            Ok(status) => status,
            Err(error) => {
                return Err(failed(
                    &format!("the client {command}: {error}"),
                    &self.process,
                ));
            }
        };
        let all = self.begun.elapsed();
        let client_ns = match self.process.cpu_ns() {
            Some(spent) => spent,
            None => children_ns()? - self.earlier_ns,
        };
        if !status.success() {
            return Err(failed(
                &format!("the client {command} {}", describe_exit(status)),
                &self.process,
            ));
        }
        let printed = if self.client.is_read() {
            self.process.whole(self.client.output == Output::Text)
        } else {
            Ok(String::new())
        };
        let reading = printed.and_then(|printed| Reading::parse(self.client, &printed));
        let reading = reading.map_err(|error| {
            Error::Definition(format!(
                "cannot read the output of the client {command}: {error:#}\n{}",
                self.process.tail()
            ))
        })?;
        if must && reading.ops == 0 {
            return Err(failed(
                &format!(
                    "the client {command} did 0 operations, so there is no cost per operation"
                ),
                &self.process,
            ));
        }
        let reported = reading.seconds.map(Duration::try_from_secs_f64);
        let took = match reported.transpose() {
            Ok(duration) => duration.unwrap_or(all),
            Err(_) => {
                return Err(failed(
                    &format!("the client {command} reports a time that is not possible"),
                    &self.process,
                ));
            }
        };
        Ok(LoadResult {
            took,
            reading,
            client_ns: Some(client_ns),
        })
    }
}

/// An error with what the client printed.
fn failed(what: &str, client: &Process) -> anyhow::Error {
    Error::Client(format!("{what}\n{}", client.tail())).into()
}

/// CPU time of all children that have ended, in nanoseconds.
fn children_ns() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("the CPU time of children")?;
    let times = [usage.user_time(), usage.system_time()];
    let ns =
        |time: &nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e9 + time.tv_usec() as f64 * 1e3;
    Ok(times.iter().map(ns).sum())
}
