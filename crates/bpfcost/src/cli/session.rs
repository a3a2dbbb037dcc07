//! A session: one run from its plan to its record, with the journal beside it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use bpfcost_bpf::{LoadedProgram, timing::Loop};
use jiff::Timestamp;

use super::{
    exit::{lacking, with_advice},
    output::note,
    progress::Progress,
    select,
};
use crate::{
    experiment::Experiment,
    measure::{self, Event, Measured, Monotonic, Plan, Stop, Warning},
    record::{self, Disturbance, Header, Journal, JournalError, Machine, Record, SessionFile},
    target::{self, CheckState, Host},
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
    /// Whether the run had come to its end before: only its record is still to be written.
    ended: bool,
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

    /// Whether the runs that were to come after it are not worth beginning.
    pub(super) fn early(&self) -> bool {
        self.interrupted() || self.trouble.is_some()
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
    if let Some(check) = checks
        .iter()
        .find(|check| check.state == CheckState::Missing)
    {
        return Err(lacking(format!(
            "{}: {}\n  {}\n  See all that this machine lacks: bpfcost check",
            check.name, check.text, check.advice
        )));
    }
    // Files don't tell all: a user namespace or a container may forbid it still.
    Loop::probe().map(|_| ()).map_err(|error| {
        lacking(format!(
            "{error}\n  Containers and user namespaces often forbid loading BPF programs: run outside \
             of them, as the machine's own root\n  See all that this machine lacks: bpfcost check"
        ))
    })
}

/// A seed that no earlier run had.
pub(super) fn draw_seed() -> u64 {
    // Below 2⁵³, so that programs that read JSON numbers as floats keep it whole.
    (Timestamp::now().as_nanosecond() as u64 ^ u64::from(std::process::id()) << 32)
        & ((1 << 53) - 1)
}

/// The machine, and what an experiment runs on it.
fn fingerprint(host: &Host, experiment: &dyn Experiment) -> Result<Machine> {
    Ok(Machine {
        programs: experiment.programs()?,
        ..host.machine()
    })
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
        let machine = fingerprint(host, &*experiment)?;
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
            ended: false,
        })
    }

    /// Goes on with a run; a time or precision given now takes the place of the old one. A run that
    /// had come to its end, and whose record could not be written, is not measured again.
    pub(super) fn resume(
        host: &Host,
        path: &Path,
        time: Option<Duration>,
        precision: Option<f64>,
    ) -> Result<Self> {
        let (journal, mut contents) = Journal::resume(path, &now())?;
        let mut plan = contents.header.plan.clone();
        let experiment = select::experiment(&plan.experiment)?;
        let ended = contents.ended.is_some() && time.is_none() && precision.is_none();
        let machine = if ended {
            contents.measured.stop = contents.ended;
            contents.header.machine
        } else {
            able(host)?;
            let machine = fingerprint(host, &*experiment)?;
            contents.header.continues(&experiment.cases(), &machine)?;
            machine
        };
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
            ended,
        })
    }

    /// Measures to the end, keeps the record, and removes the journal.
    pub(super) fn run(mut self, host: &Host, interrupt: &AtomicBool) -> Result<Ended> {
        let mut machine = self.machine.clone();
        let mut others = Vec::new();
        let (measured, disturbance, unwritten) = if self.ended {
            note!(
                "{} holds a run that had come to its end; its record is made without measuring again",
                self.journal.path().display()
            );
            (self.measured.clone(), self.earlier, None)
        } else {
            let loaded = bpfcost_bpf::loaded_programs();
            let name = |one: LoadedProgram| format!("{} {} ({})", one.kind, one.name, one.id);
            others.extend(loaded.into_iter().map(name));
            self.measure(host, interrupt)?
        };
        Host::disturbed(&mut machine, &disturbance, others);
        let mut warnings = target::warnings(&machine, &disturbance);
        if !self.ended && !host.sees_other_programs() {
            warnings.push(Warning::new(
                "others-unseen",
                "BPF programs of others may have run meanwhile: the kernel lists them only for \
                 CAP_SYS_ADMIN. Look as root with bpftool prog list, or measure as root",
            ));
        }
        let spread = SessionFile::of_user()
            .and_then(|file| file.load(&machine).ok().flatten())
            .map(|spread| spread.share());
        let mut record = Record::build(&self.plan, &measured, &self.started, machine, spread);
        record.warnings.append(&mut warnings);
        let trouble = match unwritten {
            Some(error) => Some(error.into()),
            None => self.keep(&record).err(),
        };
        Ok(Ended { record, trouble })
    }

    /// Measures, with every event in the journal: what was seen, what disturbed it, and why the
    /// journal could not be written.
    fn measure(
        &mut self,
        host: &Host,
        interrupt: &AtomicBool,
    ) -> Result<(Measured, Disturbance, Option<JournalError>)> {
        let mut watch = host.watch(&self.plan.cpus);
        let mut progress = Progress::new(&self.plan, self.measured.seconds());
        let mut unwritten = None;
        let mut worth_keeping = self.measured.epochs() > 0;
        let journal = &mut self.journal;
        let measured = measure::measure(
            &*self.experiment,
            &self.plan,
            &Monotonic::start(),
            interrupt,
            self.measured.clone(),
            &mut |event| {
                progress.show(event);
                worth_keeping |= matches!(event, Event::Trial { .. });
                if unwritten.is_some() {
                    return Ok(());
                }
                let mut written = journal.event(event);
                if let (Ok(()), Event::EpochFinished { .. }) = (&written, event) {
                    written = journal.disturbed(&watch.look());
                }
                // Keep what is in memory: end the run, and show what there is.
                if let Err(error) = written {
                    unwritten = Some(error);
                    interrupt.store(true, Ordering::Relaxed);
                }
                Ok(())
            },
        );
        progress.end();
        let error = match measured {
            Ok(measured) => {
                return Ok((measured, self.earlier.merge(watch.look()), unwritten));
            }
            Err(error) => anyhow::Error::from(error),
        };
        let journal = self.journal.path();
        if worth_keeping {
            // The same time would be refused again.
            let time = match error.downcast_ref() {
                Some(measure::Error::TooShort { needed, .. }) => format!(" --time {needed:.0}s"),
                _ => String::new(),
            };
            let kept = format!(
                "What was measured until then is kept; go on with: bpfcost run --resume {}{time}",
                journal.display()
            );
            return Err(with_advice(&error, &kept));
        }
        // Without a trial it would only stand in the way of the next attempt.
        let _ = fs::remove_file(journal);
        Err(error)
    }

    /// Writes the record, then removes the journal, which an interrupted run still needs.
    fn keep(self, record: &Record) -> Result<()> {
        record::write(record, &self.out).with_context(|| {
            let journal = self.journal.path().display();
            format!(
                "the record could not be kept; the journal {journal} still holds every trial, and \
                 makes it once there is a place for it: bpfcost run --resume {journal}"
            )
        })?;
        note!("record: {}", self.out.display());
        if record.stop == Stop::Interrupted {
            note!("continue: bpfcost run --resume {}", self.out.display());
            return Ok(());
        }
        Ok(self.journal.remove()?)
    }
}

/// Now, as records write it.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::{Exit, sentence};

    /// Why a machine with these files can't measure.
    fn refused(files: &[(&str, &str)]) -> String {
        let root = tempfile::TempDir::new().expect("a folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let error = able(&Host::at(root.path())).expect_err("it can't");
        assert_eq!(Exit::of(&error), Exit::Lacking);
        sentence(&error)
    }

    const ROOT: (&str, &str) = ("proc/self/status", "CapEff:\t000001ffffffffff\n");
    const NEW: (&str, &str) = ("proc/sys/kernel/osrelease", "6.12.0\n");
    const OLD: (&str, &str) = ("proc/sys/kernel/osrelease", "5.10.0-44-amd64\n");
    const BTF: (&str, &str) = ("sys/kernel/btf/vmlinux", "btf");

    #[test]
    fn machines_that_lack_something_are_refused_before_anything_is_loaded() {
        let error = refused(&[OLD, BTF]);
        assert!(
            error.contains("CAP_BPF") && error.contains("setcap"),
            "{error}"
        );
        let error = refused(&[ROOT, NEW]);
        assert!(error.contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
        let error = refused(&[ROOT, OLD, BTF]);
        assert!(error.contains("5.10.0-44-amd64 is too old"), "{error}");
        assert!(error.contains("bpfcost check"), "{error}");
    }
}
