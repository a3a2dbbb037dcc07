//! A session: one run from its plan to its record, with the journal beside it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};

use super::{
    estimate::Estimate,
    exit::with_advice,
    interrupt,
    output::note,
    place::{Observer, Outcome, Place},
    progress::Progress,
    select,
};
use bpfcost_measure::{self, Event, Measurements, Plan, Stop, time_option};
use bpfcost_model::Experiment;
use bpfcost_record::{Disturbance, Header, Journal, JournalError, Machine, Record, now};
use bpfcost_target::{Host, guest::Failure};

/// A run that is about to begin or to go on.
pub(super) struct Session {
    experiment: Box<dyn Experiment>,
    plan: Plan,
    started: String,
    machine: Machine,
    measured: Measurements,
    earlier: Disturbance,
    journal: Journal,
    out: PathBuf,
    /// `None` where the run had come to its end before: only its record is still to be written.
    place: Option<Place>,
    /// True if other runs go on at the same time.
    beside_others: bool,
}

/// A run that has ended, whole or not.
pub(super) struct Ended {
    pub(super) record: Record,
    /// Where the record lies, unless there was trouble.
    pub(super) out: PathBuf,
    /// What kept the record or its journal from being written.
    pub(super) trouble: Option<anyhow::Error>,
}

impl Ended {
    pub(super) fn interrupted(&self) -> bool {
        self.record.stop == Stop::Interrupted
    }

    /// Where the record lies, and how the run goes on; nothing where there was trouble.
    pub(super) fn note(&self) -> Option<String> {
        if self.trouble.is_some() {
            return None;
        }
        let out = self.out.display();
        Some(if self.interrupted() {
            format!("record: {out}\ncontinue: bpfcost run --resume {out}")
        } else {
            format!("record: {out}")
        })
    }

    /// Whether the runs that were to come after it are not worth beginning.
    pub(super) fn early(&self) -> bool {
        self.interrupted() || self.trouble.is_some()
    }
}

/// A seed that no earlier run had.
pub(super) fn draw_seed() -> u64 {
    // Below 2⁵³, so that programs that read JSON numbers as floats keep it whole.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    (now.unwrap_or_default().as_nanos() as u64 ^ u64::from(std::process::id()) << 32)
        & ((1 << 53) - 1)
}

impl Session {
    /// Begins a run; its record will be `out`.
    pub(super) fn start(
        experiment: Box<dyn Experiment>,
        plan: Plan,
        out: &Path,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Self> {
        bpfcost_record::writable(out)?;
        Journal::vacant(out)?;
        let (place, machine) = Place::ready(&*experiment, &plan, None, interrupt)?;
        // A guest has its plan already. Without a history, the run is the first on its machine.
        let history = crate::cli::store::sessions().filter(|_| plan.target == "host");
        let anchor = history.and_then(|history| history.anchor(&machine).ok()?);
        let plan = Plan { anchor, ..plan };
        let started = now();
        let journal = Journal::create(out, &Header::new(&plan, &started, &machine))?;
        Ok(Session {
            experiment,
            measured: Measurements::new(&plan),
            plan,
            started,
            machine,
            earlier: Disturbance::default(),
            journal,
            out: out.to_owned(),
            place: Some(place),
            beside_others: false,
        })
    }

    /// Goes on with a run; a time or precision given now takes the place of the old one. A run that
    /// had come to its end, and whose record could not be written, is not measured again.
    pub(super) fn resume(
        path: &Path,
        time: Option<Duration>,
        precision: Option<f64>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (journal, mut contents) = Journal::resume(path, &now())?;
        let mut plan = contents.header.plan.clone();
        plan.seconds = time.map(|time| time.as_secs_f64()).or(plan.seconds);
        plan.patient &= time.is_none();
        plan.precision = precision.or(plan.precision);
        let experiment = select::planned(&plan)?;
        let ended = contents.ended.is_some() && time.is_none() && precision.is_none();
        // The record lies beside its journal, whichever of the two was named.
        let out = journal.path().with_extension("");
        bpfcost_record::writable(&out)?;
        let (place, machine) = if ended {
            contents.measured.stop = contents.ended;
            (None, contents.header.machine)
        } else {
            contents.has_rounds_of(&plan)?;
            let journal = Some(journal.path());
            let (place, machine) = Place::ready(&*experiment, &plan, journal, interrupt)?;
            contents.header.continues(&experiment.cases(), &machine)?;
            (Some(place), machine)
        };
        Ok(Session {
            experiment,
            plan,
            started: contents.header.started,
            machine,
            measured: contents.measured,
            earlier: contents.disturbance,
            journal,
            out,
            place,
            beside_others: false,
        })
    }

    /// The same, where other runs go on at the same time.
    pub(super) fn beside_others(self) -> Self {
        Session {
            beside_others: true,
            ..self
        }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Measures to the end, keeps the record, and removes the journal.
    pub(super) fn run(mut self, interrupt: &AtomicBool) -> Result<Ended> {
        let mut machine = self.machine.clone();
        let (outcome, unwritten) = match self.place.take() {
            Some(place) => self.measure(place, interrupt)?,
            None => {
                note!(
                    "{} holds a finished run; its record is written without measuring again",
                    self.journal.path().display()
                );
                let outcome = Outcome {
                    measured: self.measured.clone(),
                    disturbance: Disturbance::default(),
                    others: Vec::new(),
                    warnings: Vec::new(),
                };
                (outcome, None)
            }
        };
        let disturbance = self.earlier.merge(outcome.disturbance);
        Host::disturbed(&mut machine, &disturbance, outcome.others);
        let mut warnings = bpfcost_target::warnings(&machine, &disturbance);
        let moot: &[&str] = match (self.plan.contends, self.plan.subject.is_workload()) {
            // Threads are started for each trial, and placed; and of emulated times the record says more.
            (true, _) => &[bpfcost_target::MIGRATIONS, bpfcost_target::EMULATED],
            // Processes of others do the work, and this program's threads none of it.
            (false, true) => &[bpfcost_target::MIGRATIONS, bpfcost_target::BUSY],
            (false, false) => &[],
        };
        warnings.retain(|warning| !moot.contains(&warning.code.as_str()));
        warnings.extend(outcome.warnings);
        let mut record = Record::build(&self.plan, &outcome.measured, &self.started, machine);
        if let Some(history) = crate::cli::store::sessions() {
            // What can't be read or written is as good as never kept: `compare` says what it assumes.
            let _ = history.continues_with(&mut record);
        }
        record.warnings.append(&mut warnings);
        let out = self.out.clone();
        let trouble = match unwritten {
            Some(error) => Some(error.into()),
            None => self.keep(&record).err(),
        };
        Ok(Ended {
            record,
            out,
            trouble,
        })
    }

    /// Measures, with every event in the journal. Returns the result, and why the journal could not be written.
    fn measure(
        &mut self,
        mut place: Place,
        interrupt: &AtomicBool,
    ) -> Result<(Outcome, Option<JournalError>)> {
        let _rescue = place.rescue(&self.journal)?;
        let mut taker = Taker {
            progress: match self.beside_others {
                true => Progress::in_lines(&self.plan, self.measured.seconds()),
                false => Progress::new(&self.plan, self.measured.seconds()),
            },
            estimate: Estimate::new(&self.plan, &self.measured),
            journal: &mut self.journal,
            interrupt,
            unwritten: None,
            worth_keeping: false,
        };
        if self.measured.epochs() > 0 {
            taker.worth_keeping();
        }
        let outcome = place.measure(
            &*self.experiment,
            &self.plan,
            self.measured.clone(),
            interrupt,
            &mut taker,
        );
        taker.progress.end();
        let error = match outcome {
            Ok(outcome) => return Ok((outcome, taker.unwritten)),
            Err(error) => error,
        };
        let worth_keeping = taker.worth_keeping;
        let journal = self.journal.path();
        if worth_keeping {
            // The same time would be refused again.
            let time =
                needed_s(&error).map_or(String::new(), |s| format!(" --time {}", time_option(s)));
            return Err(with_advice(&error, &(resume_line(journal) + &time)));
        }
        // Without a trial it would only stand in the way of the next attempt.
        let _ = fs::remove_file(journal);
        Err(error)
    }

    /// Writes the record, then removes the journal, which an interrupted run still needs.
    fn keep(self, record: &Record) -> Result<()> {
        bpfcost_record::write(record, &self.out).with_context(|| {
            let journal = self.journal.path().display();
            format!(
                "the record could not be saved (the journal still holds every trial; once there \
                 is room: bpfcost run --resume {journal})"
            )
        })?;
        if record.stop == Stop::Interrupted {
            return Ok(());
        }
        interrupt::clear_last_words(self.journal.path());
        self.journal.remove()?;
        Ok(())
    }
}

/// Takes down what happens: shows it, and writes it to the journal.
struct Taker<'a> {
    progress: Progress,
    estimate: Estimate,
    journal: &'a mut Journal,
    interrupt: &'a AtomicBool,
    unwritten: Option<JournalError>,
    /// Whether there is a trial that would be lost without the journal.
    worth_keeping: bool,
}

impl Taker<'_> {
    /// Notes that there is such a trial.
    fn worth_keeping(&mut self) {
        if !self.worth_keeping {
            self.worth_keeping = true;
            let journal = self.journal.path();
            interrupt::set_last_words(journal, resume_line(journal));
        }
    }

    fn written(&mut self, write: impl FnOnce(&mut Journal) -> Result<(), JournalError>) {
        if self.unwritten.is_some() {
            return;
        }
        // Keep what is in memory: end the run, and show what there is.
        if let Err(error) = write(self.journal) {
            self.unwritten = Some(error);
            self.interrupt.store(true, Ordering::Relaxed);
        }
    }
}

impl Observer for Taker<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        self.progress.show(event);
        if let Some(estimate) = self.estimate.take(event) {
            self.progress.say(&estimate);
        }
        if matches!(event, Event::Trial { .. }) {
            self.worth_keeping();
        }
        self.written(|journal| journal.event(event));
        Ok(())
    }

    fn disturbed(&mut self, disturbance: &Disturbance) -> Result<()> {
        self.written(|journal| journal.disturbed(disturbance));
        Ok(())
    }
}

/// How a run that ended early goes on.
fn resume_line(journal: &Path) -> String {
    format!(
        "The trials until then are saved; continue with: bpfcost run --resume {}",
        journal.display()
    )
}

/// The time that would have been enough, where an error is that there was too little.
fn needed_s(error: &anyhow::Error) -> Option<f64> {
    error.chain().find_map(|cause| {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.needed_s;
        }
        match cause.downcast_ref() {
            Some(bpfcost_measure::Error::TooShort { needed, .. }) => Some(*needed),
            _ => None,
        }
    })
}
