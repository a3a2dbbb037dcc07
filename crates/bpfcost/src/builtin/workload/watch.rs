//! A service that is running: never started or stopped, only read. Its operations are counted by a command, whose CPU time
//! may be the service's, so windows with and without a probe read it equally often.

use std::{
    cell::RefCell,
    rc::Rc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};

use super::guard::{Account, Guard, Service};
use bpfcost_model::{ENDED, Fault, VARIANT};
use bpfcost_probe::{unit_group, unit_pids};
use bpfcost_process::{
    Capture, Process, RunContext, describe_exit, process_tree, restore::started,
};
use bpfcost_workload::{LoadResult, Reading, RunningServer, UsageReader, UsageSnapshot, find};

/// Interval at which the service is checked to be alive.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest run of the command that counts operations.
const OPS_TIMEOUT: Duration = Duration::from_secs(10);
/// Pattern of the count where the command prints nothing else.
const ONLY_NUMBER: &str = r"\A\s*([0-9][0-9_,.]*)\s*\z";

/// A service that is watched.
#[derive(Debug)]
pub(super) struct WatchedService {
    watch: RunningServer,
    /// Pid and start time of the service's first process.
    root: (u32, u64),
    accounts: UsageReader<'static>,
    /// Guard of the service's limit, if it has one.
    guard: Option<Rc<RefCell<Guard>>>,
}

impl WatchedService {
    pub(super) fn open(watch: &RunningServer, guard: Option<&Rc<RefCell<Guard>>>) -> Result<Self> {
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
            guard: guard.cloned(),
        })
    }

    /// Returns the reader of the resources spent on the service.
    pub(super) fn accounts(&self) -> &UsageReader<'static> {
        &self.accounts
    }

    /// Returns the pids of the service; none if they cannot be read.
    pub(super) fn pids(&self) -> Vec<u32> {
        pids(&self.watch).unwrap_or_default()
    }

    /// Learns the noise of the service, before the first probe is attached. Refuses a limit within that noise.
    pub(super) fn learn(&self, context: &RunContext) -> Result<(), Fault> {
        let guard = self.guard.as_ref();
        guard.map_or(Ok(()), |guard| {
            guard.borrow_mut().learn(&mut Readings::new(self, context))
        })
    }

    /// Waits for a window, with the probe attached or without, and counts its operations.
    pub(super) fn window(&self, context: &RunContext, on: bool) -> Result<LoadResult, Fault> {
        let mut readings = Readings::new(self, context);
        let window = Duration::from_millis(context.window_ms);
        let variant = context.factors.get(VARIANT).map_or("", String::as_str);
        let [first, last] = match &self.guard {
            Some(guard) => {
                let variant = on.then_some(variant);
                guard.borrow_mut().window(&mut readings, window, variant)?
            }
            None => {
                let first = readings.read()?;
                readings.wait_until(first.at + window)?;
                [first, readings.read()?]
            }
        };
        let (took, done) = (last.at - first.at, last.ops - first.ops);
        if self.counts() && done < 1.0 {
            return Err(Fault::Broken(anyhow!(
                "{} did no operation in {:.1} s, so there is no cost per operation\n  Watch it while it has work, or drop \
                 --ops to compare its CPU time per second",
                named(&self.watch),
                took.as_secs_f64()
            )));
        }
        Ok(LoadResult {
            took,
            client_ns: None,
            reading: Reading {
                ops: (done.round() as u64).max(1),
                // Fractions of a second would be lost in a whole number of operations.
                exact: Some(done),
                ..Reading::default()
            },
        })
    }

    /// Decides whether a window that was cut off is run again; fails with the reason if not. No probe is attached now.
    pub(super) fn judge(&self, context: &RunContext, cut: Fault) -> Result<(), Fault> {
        match &self.guard {
            Some(guard) => guard
                .borrow_mut()
                .judge(&mut Readings::new(self, context), cut),
            None => Err(cut),
        }
    }

    /// Returns whether a command counts operations; otherwise seconds stand for them.
    fn counts(&self) -> bool {
        !self.watch.ops.is_empty()
    }

    /// Operations so far, as its command prints them.
    fn ops(&self) -> Result<f64, Fault> {
        let asked = self.watch.ops.last().map_or("", String::as_str);
        let mut process = Process::start_captured(&self.watch.ops, &[], &[], Capture::to_read())?;
        let status = process.wait(OPS_TIMEOUT)?;
        if !status.success() {
            return Err(Fault::Broken(anyhow!(
                "--ops {asked} {}\n{}",
                describe_exit(status),
                process.tail()
            )));
        }
        let printed = process.whole(true)?;
        let pattern = self.watch.metric.as_deref();
        let number = find("of --ops", pattern.unwrap_or(ONLY_NUMBER), &printed);
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

/// Readings of a service, by a clock that begins with them.
struct Readings<'a> {
    service: &'a WatchedService,
    context: &'a RunContext,
    begun: Instant,
    /// The first reading: what was spent since then is counted.
    first: Option<UsageSnapshot>,
}

impl<'a> Readings<'a> {
    fn new(service: &'a WatchedService, context: &'a RunContext) -> Self {
        Readings {
            service,
            context,
            begun: Instant::now(),
            first: None,
        }
    }
}

impl Service for Readings<'_> {
    fn name(&self) -> String {
        named(&self.service.watch)
    }

    fn counts(&self) -> bool {
        self.service.counts()
    }

    fn wait_until(&mut self, time: Duration) -> Result<(), Fault> {
        loop {
            let left = time.saturating_sub(self.begun.elapsed());
            sleep(left.min(POLL_INTERVAL));
            self.service.alive()?;
            if self.begun.elapsed() >= time {
                return Ok(());
            }
        }
    }

    fn read(&mut self) -> Result<Account, Fault> {
        let counted = if self.counts() {
            Some(self.service.ops()?)
        } else {
            None
        };
        let at = self.begun.elapsed();
        let context = self.context;
        let spent = self
            .service
            .accounts
            .spent(&context.pids, &context.tool, None)?;
        let since = spent.since(self.first.get_or_insert_with(|| spent.clone()));
        Ok(Account {
            at,
            ops: counted.unwrap_or(at.as_secs_f64()),
            service_ns: since.server_ns,
            tool_ns: since.tool_ns,
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
