//! A session: one run from its plan to its record, with the journal beside it.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anstream::eprintln;
use anyhow::{Context, Result};
use jiff::Timestamp;

use super::{exit::lacking, progress::Progress, select};
use crate::{
    experiment::Experiment,
    measure::{self, Event, Measured, Monotonic, Plan, Stop},
    record::{self, Disturbance, Header, Journal, Machine, Record, SessionFile},
    target::{self, Host},
};

/// A run that is about to begin or to go on.
pub(super) struct Session {
    experiment: Box<dyn Experiment>,
    plan: Plan,
    started: String,
    machine: Machine,
    measured: Measured,
    earlier: Disturbance,
    journal: Journal,
    out: PathBuf,
}

/// A run that has ended, whole or not.
pub(super) struct Ended {
    pub(super) record: Record,
    /// What kept the record or its journal from being written.
    pub(super) trouble: Option<anyhow::Error>,
}

impl Ended {
    pub(super) fn interrupted(&self) -> bool {
        self.record.stop == Stop::Interrupted
    }
}

/// Refuses where the machine lacks what every run needs.
pub(super) fn able(host: &Host) -> Result<()> {
    let missing = host.missing_capabilities();
    if !missing.is_empty() {
        return Err(lacking(format!(
            "this process lacks {}, without which the kernel loads no BPF programs\n  \
             Run it as root: sudo bpfcost …, or give the capabilities: \
             sudo setcap cap_bpf,cap_net_admin,cap_perfmon+ep $(command -v bpfcost)\n  \
             See all that this machine lacks: bpfcost check",
            missing.join(", ")
        )));
    }
    let checks = host.checks();
    match checks
        .iter()
        .find(|check| check.state == target::CheckState::Missing)
    {
        Some(check) => Err(lacking(format!(
            "{}: {}\n  {}\n  See all that this machine lacks: bpfcost check",
            check.name, check.text, check.advice
        ))),
        None => Ok(()),
    }
}

/// A seed that no earlier run had.
pub(super) fn draw_seed() -> u64 {
    // Below 2⁵³, so that programs that read JSON numbers as floats keep it whole.
    (Timestamp::now().as_nanosecond() as u64 ^ u64::from(std::process::id()) << 32)
        & ((1 << 53) - 1)
}

impl Session {
    /// Begins a run; its record will be `out`.
    pub(super) fn start(
        host: &Host,
        experiment: Box<dyn Experiment>,
        plan: Plan,
        out: &Path,
    ) -> Result<Self> {
        record::writable(out)?;
        let machine = host.machine();
        let started = now();
        let journal = Journal::create(out, &Header::new(&plan, &started, &machine))?;
        Ok(Session {
            experiment,
            measured: Measured::new(&plan),
            plan,
            started,
            machine,
            earlier: Disturbance::default(),
            journal,
            out: out.to_owned(),
        })
    }

    /// Goes on with a run; a time or precision given now takes the place of the old one.
    pub(super) fn resume(
        host: &Host,
        path: &Path,
        time: Option<Duration>,
        precision: Option<f64>,
    ) -> Result<Self> {
        able(host)?;
        let (journal, contents) = Journal::resume(path, &now())?;
        let mut plan = contents.header.plan.clone();
        let machine = host.machine();
        let experiment = select::experiment(&plan.experiment)?;
        contents.header.continues(&experiment.cases(), &machine)?;
        plan.seconds = time.map(|time| time.as_secs_f64()).or(plan.seconds);
        plan.precision = precision.or(plan.precision);
        // The record lies beside its journal, whichever of the two was named.
        let out = journal.path().with_extension("");
        record::writable(&out)?;
        Ok(Session {
            experiment,
            plan,
            started: contents.header.started,
            machine,
            measured: contents.measured,
            earlier: contents.disturbance,
            journal,
            out,
        })
    }

    /// Measures to the end, keeps the record, and removes the journal.
    pub(super) fn run(mut self, host: &Host, interrupt: &AtomicBool) -> Result<Ended> {
        let others = bpfcost_bpf::loaded_programs();
        let others = others
            .into_iter()
            .map(|one| format!("{} {} ({})", one.kind, one.name, one.id))
            .collect();
        let mut watch = host.watch(&self.plan.cpus);
        let mut progress = Progress::new(&self.plan, self.measured.seconds());
        let mut unwritten = None;
        let journal = &mut self.journal;
        let measured = measure::measure(
            &*self.experiment,
            &self.plan,
            &Monotonic::start(),
            interrupt,
            self.measured,
            &mut |event| {
                progress.show(event);
                let mut written = journal.event(event);
                if let (Ok(()), Event::EpochFinished { .. }) = (&written, event) {
                    written = journal.disturbed(&watch.look());
                }
                // Keep what is in memory: end the run, and show what there is.
                if let (Err(error), None) = (written, &unwritten) {
                    unwritten = Some(error);
                    interrupt.store(true, Ordering::Relaxed);
                }
                Ok(())
            },
        );
        progress.end();
        let measured = measured.map_err(anyhow::Error::from).with_context(|| {
            format!(
                "the run ended early; its journal is {}",
                self.journal.path().display()
            )
        })?;

        let disturbance = self.earlier.merge(watch.look());
        let mut machine = self.machine;
        Host::disturbed(&mut machine, &disturbance, others);
        let mut warnings = target::warnings(&machine, &disturbance);
        let spread = SessionFile::of_user()
            .and_then(|file| file.load(&machine).ok().flatten())
            .map(|spread| spread.share());
        let mut record = Record::build(&self.plan, &measured, &self.started, machine, spread);
        record.warnings.append(&mut warnings);
        let trouble = match unwritten {
            Some(error) => Some(error.into()),
            None => match record::write(&record, &self.out) {
                Err(error) => Some(anyhow::Error::from(error).context(format!(
                    "the record could not be kept; the journal {} still holds every trial",
                    self.journal.path().display()
                ))),
                Ok(()) => {
                    eprintln!("record: {}", self.out.display());
                    if record.stop == Stop::Interrupted {
                        eprintln!("continue: bpfcost run --resume {}", self.out.display());
                        None
                    } else {
                        self.journal.remove().err().map(anyhow::Error::from)
                    }
                }
            },
        };
        Ok(Ended { record, trouble })
    }
}

/// Now, as records write it.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
