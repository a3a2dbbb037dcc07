//! A window on a service that is running. Nothing is started or stopped. The probe is detached if the service ends, or if
//! the probe costs more than `--abort-above`. Looking for that costs the service CPU time, so windows without the probe
//! are looked at as often.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use crate::{
    experiment::{ENDED, Fault, LET_GO},
    probe::{unit_group, unit_pids},
    process::{Capture, Process, RunContext, describe_exit, process_tree},
    restore::started,
    workload::{LoadResult, Reading, RunningServer, UsageReader, find},
};

/// How often the service is looked at in a window.
const LOOK: Duration = Duration::from_millis(100);
/// Looks in a row that must find it too dear: a single one may have met a burst.
const LOOKS: u32 = 2;
/// Operations from which their cost is judged while a window lasts.
const FEWEST_OPS: f64 = 10.0;
/// How long the command that counts operations may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What finds the count where the command prints nothing else.
const ALONE: &str = r"\A\s*([0-9][0-9_,.]*)\s*\z";

/// A service that is watched.
#[derive(Debug)]
pub(super) struct WatchedService {
    watch: RunningServer,
    /// Its first process, and when that was started.
    root: (u32, u64),
    accounts: UsageReader<'static>,
    /// What windows without a probe cost.
    off: Vec<ServiceCost>,
}

/// What a stretch of time cost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ServiceCost {
    /// CPU time of the service, in nanoseconds an operation, or a second where operations are not counted.
    service_ns: f64,
    /// CPUs that the machine was busy with.
    cpus: f64,
}

impl WatchedService {
    pub(super) fn open(watch: &RunningServer) -> Result<Self> {
        let pids = pids(watch)?;
        let root = *pids
            .first()
            .with_context(|| format!("{} is not running", named(watch)))?;
        let start = started(root).with_context(|| format!("{} is not running", named(watch)))?;
        let group = match &watch.unit {
            Some(unit) => unit_group(unit)?,
            None => None,
        };
        Ok(WatchedService {
            watch: watch.clone(),
            root: (root, start),
            accounts: UsageReader::watching(&pids, group),
            off: Vec::new(),
        })
    }

    /// What is spent on it.
    pub(super) fn accounts(&self) -> &UsageReader<'static> {
        &self.accounts
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        pids(&self.watch).unwrap_or_default()
    }

    /// Whether windows without a probe are needed before one with it.
    pub(super) fn needs_a_reference(&self) -> bool {
        self.watch.abort_above.is_some() && self.off.is_empty()
    }

    /// Whether operations are counted; otherwise seconds stand for them.
    fn counts(&self) -> bool {
        !self.watch.ops.is_empty()
    }

    /// Waits for a window, looking after the service meanwhile; what it did.
    pub(super) fn window(&mut self, context: &RunContext, on: bool) -> Result<LoadResult, Fault> {
        let spent = |service: &Self| service.accounts.spent(&context.pids, &[], None);
        let window = Duration::from_millis(context.window_ms);
        let ops = self.ops()?;
        let before = spent(self)?;
        let begun = Instant::now();
        let mut dear = 0;
        loop {
            let left = window.saturating_sub(begun.elapsed());
            sleep(left.min(LOOK));
            self.alive()?;
            let took = begun.elapsed();
            let over = took >= window;
            // Without the probe too, or the looks would be told as its cost.
            if !over && self.watch.abort_above.is_none() {
                continue;
            }
            let done = if self.counts() {
                self.ops()? - ops
            } else {
                took.as_secs_f64()
            };
            let spent = spent(self)?.since(&before);
            let cost = ServiceCost {
                service_ns: spent.server_ns / done,
                cpus: spent.machine_ns / took.as_secs_f64() / 1e9,
            };
            // Of few operations the cost of one is not known: none in a look would make it infinite.
            let known = !self.counts() || done >= FEWEST_OPS;
            dear = match self.too_dear(cost).filter(|_| on && known) {
                None => 0,
                Some(why) if dear + 1 == LOOKS => {
                    return Err(Fault::Enough {
                        code: LET_GO,
                        text: format!(
                            "The probe was detached after {:.1} s: {why}.",
                            took.as_secs_f64()
                        ),
                    });
                }
                Some(_) => dear + 1,
            };
            if !over {
                continue;
            }
            if self.counts() && done < 1.0 {
                return Err(Fault::Broken(anyhow!(
                    "{} did no operation in {:.1} s, so there is no cost per operation\n  Watch it while it has \
                     work, or drop --ops to compare its CPU time per second",
                    named(&self.watch),
                    took.as_secs_f64()
                )));
            }
            if !on {
                self.off.push(cost);
            }
            return Ok(LoadResult {
                took,
                client_ns: None,
                reading: Reading {
                    ops: (done.round() as u64).max(1),
                    // Fractions of a second would be lost in a whole number of operations.
                    exact: Some(done),
                    ..Reading::default()
                },
            });
        }
    }

    /// Why a cost is more than was allowed, if it is.
    fn too_dear(&self, cost: ServiceCost) -> Option<String> {
        let most = self.watch.abort_above?;
        let usual = |value: fn(&ServiceCost) -> f64| {
            let mut seen: Vec<f64> = self.off.iter().map(value).collect();
            seen.sort_by(f64::total_cmp);
            seen.get(seen.len() / 2).copied()
        };
        let (service, cpus) = (usual(|cost| cost.service_ns)?, usual(|cost| cost.cpus)?);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let rise = cost.service_ns / service - 1.0;
        if service > 0.0 && rise > most {
            let what = if self.counts() {
                format!("an operation of {}", named(&self.watch))
            } else {
                named(&self.watch)
            };
            return Some(format!(
                "{what} took {} more CPU time, and {} is allowed",
                percent(rise),
                percent(most)
            ));
        }
        let more = cost.cpus - cpus;
        (more > most).then(|| {
            format!(
                "the machine spent {} of a CPU more, and {} is allowed",
                percent(more),
                percent(most)
            )
        })
    }

    /// Operations so far, as its command prints them; 0 without one.
    fn ops(&self) -> Result<f64, Fault> {
        if !self.counts() {
            return Ok(0.0);
        }
        let asked = self.watch.ops.last().map_or("", String::as_str);
        let mut process = Process::start_captured(&self.watch.ops, &[], &[], Capture::to_read())?;
        let status = process.wait(PATIENCE)?;
        if !status.success() {
            return Err(Fault::Broken(anyhow!(
                "--ops {asked} {}\n{}",
                describe_exit(status),
                process.tail()
            )));
        }
        let pattern = self.watch.metric.as_deref();
        let printed = process.whole(true)?;
        let number = find("of --ops", pattern.unwrap_or(ALONE), &printed);
        let advice = match pattern {
            Some(_) => "",
            None => "\n  It prints more than a number: pick the number with --metric",
        };
        Ok(number.with_context(|| {
            format!(
                "the output of --ops {asked} is not a count{advice}\n{}",
                process.tail()
            )
        })?)
    }

    /// Ends the run if the service has ended: it is not restarted for a measurement.
    fn alive(&self) -> Result<(), Fault> {
        let (pid, start) = self.root;
        if started(pid) == Some(start) {
            return Ok(());
        }
        Err(Fault::Enough {
            code: ENDED,
            text: format!(
                "{} (process {pid}) ended or was restarted while it was watched.",
                named(&self.watch)
            ),
        })
    }
}

/// The service's name, for people.
fn named(watch: &RunningServer) -> String {
    match (&watch.unit, watch.pids.first()) {
        (Some(unit), _) => unit.clone(),
        (None, Some(pid)) => format!("process {pid}"),
        (None, None) => "the service".to_owned(),
    }
}

/// The processes of a service: those of its unit, or those named with all that they started.
fn pids(watch: &RunningServer) -> Result<Vec<u32>> {
    match &watch.unit {
        Some(unit) => unit_pids(unit),
        None => Ok(watch
            .pids
            .iter()
            .flat_map(|pid| process_tree(*pid))
            .collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(abort_above: Option<f64>, ops: &[&str], off: &[(f64, f64)]) -> WatchedService {
        WatchedService {
            watch: RunningServer {
                pids: vec![7],
                unit: None,
                ops: ops.iter().map(|&word| word.to_owned()).collect(),
                metric: None,
                abort_above,
            },
            root: (7, 0),
            accounts: UsageReader::default(),
            off: off
                .iter()
                .map(|&(service_ns, cpus)| ServiceCost { service_ns, cpus })
                .collect(),
        }
    }

    #[test]
    fn what_is_too_dear_is_told_from_windows_without_the_probe() {
        let watched = watched(
            Some(0.2),
            &["ops"],
            &[(100.0, 0.9), (90.0, 1.0), (1000.0, 1.1)],
        );
        let why = |service_ns, cpus| watched.too_dear(ServiceCost { service_ns, cpus });
        assert_eq!(
            why(119.0, 1.19),
            None,
            "of three windows, the middle one counts"
        );
        let told = why(150.0, 1.0).expect("too dear");
        assert!(
            told.contains("an operation of process 7 took 50 % more"),
            "{told}"
        );
        let told = why(100.0, 1.5).expect("too dear");
        assert!(
            told.contains("50 % of a CPU more, and 20 % is allowed"),
            "{told}"
        );
    }

    #[test]
    fn without_a_limit_or_a_reference_nothing_is_too_dear() {
        let dear = ServiceCost {
            service_ns: 1e9,
            cpus: 64.0,
        };
        assert_eq!(watched(None, &[], &[(1.0, 0.1)]).too_dear(dear), None);
        assert_eq!(watched(Some(0.2), &[], &[]).too_dear(dear), None);
        assert!(watched(Some(0.2), &[], &[]).needs_a_reference());
    }
}
