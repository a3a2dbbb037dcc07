//! The run: epoch after epoch until there is a reason to stop. Each thing that happens is passed on
//! before anything else is done, so that a kill at any moment loses at most the trial under way.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result as AnyResult, anyhow};

use super::{Clock, Error, Event, Measured, Plan, Stop, Warning, stopping::imprecise};
use crate::experiment::{Batch, Experiment, Fault, Loaded, Problem, Sentinel, Trial};

/// Measures `plan`, and returns all that was seen.
///
/// `resumed` is what earlier sessions of the same plan saw ([`Measured::new`] where there are none); the
/// run goes on with the next epoch, with their calibrations, and their time counts. `observe` is told
/// each [`Event`] as it happens; where it fails, the run ends. Setting `interrupt` ends it after the
/// trial under way.
///
/// Whatever the way out, each epoch that was loaded is unloaded.
pub fn measure(
    experiment: &dyn Experiment,
    plan: &Plan,
    clock: &dyn Clock,
    interrupt: &AtomicBool,
    resumed: Measured,
    observe: &mut dyn FnMut(&Event) -> AnyResult<()>,
) -> Result<Measured, Error> {
    if resumed.cases.len() != plan.cases.len() {
        return Err(Error::OtherPlan {
            expected: plan.cases.len(),
            found: resumed.cases.len(),
        });
    }
    let mut run = Run {
        experiment,
        plan,
        clock,
        interrupt,
        begun_s: clock.now().as_secs_f64(),
        earlier_s: resumed.seconds(),
        calibrating_s: 0.0,
        measured: resumed,
        observe,
    };
    run.measured.reopen();
    let stop = match run.epochs() {
        Ok(stop) => stop,
        Err(Halt::Failed(error)) => return Err(error),
        Err(Halt::Interrupted) => Stop::Interrupted,
        Err(Halt::Enough) => Stop::Aborted,
    };
    if stop == Stop::Time
        && let Some(warning) = imprecise(plan, &run.measured, run.spent_s())
    {
        run.tell(Event::Warned(warning))?;
    }
    run.tell(Event::Stopped { stop })?;
    Ok(run.measured)
}

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) experiment: &'a dyn Experiment,
    pub(super) plan: &'a Plan,
    clock: &'a dyn Clock,
    interrupt: &'a AtomicBool,
    /// When this session began, by the clock.
    begun_s: f64,
    /// What earlier sessions took.
    earlier_s: f64,
    /// What calibrating took in this session: no later epoch does it again.
    pub(super) calibrating_s: f64,
    pub(super) measured: Measured,
    observe: &'a mut dyn FnMut(&Event) -> AnyResult<()>,
}

/// Why a run does not go on.
pub(super) enum Halt {
    /// Somebody asked the run to end.
    Interrupted,
    /// No further trial may follow.
    Enough,
    /// It can't.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Failed(error)
    }
}

impl Run<'_> {
    /// Epochs until there is a reason to stop.
    fn epochs(&mut self) -> Result<Stop, Halt> {
        self.find_unsupported()?;
        if let Some(stop) = self.due()? {
            return Ok(stop);
        }
        let setup = self.plan.setup(&self.live(), self.measured.epochs());
        // Counts don't drift.
        let mut sentinel = match self.plan.counts() {
            true => None,
            false => self
                .experiment
                .sentinel(&setup)
                .map_err(|error| self.broken("loading the sentinel".to_owned(), error))?,
        };
        if self.plan.counts() {
            self.calibrate_apart()?;
        }
        loop {
            self.epoch(sentinel.as_deref_mut())?;
            if let Some(stop) = self.due()? {
                return Ok(stop);
            }
        }
    }

    fn find_unsupported(&mut self) -> Result<(), Halt> {
        for case in self.live() {
            let of = &self.plan.cases[case];
            let cpus = of.cpus;
            let reason = match self.plan.counts() && cpus > 1 {
                true => Some(format!(
                    "needs {cpus} CPUs at once, and a guest that counts instructions has one; run it on \
                     host or in vm:KERNEL"
                )),
                false => self.experiment.unsupported(of).map_err(|error| {
                    self.broken(format!("asking whether {} can run", of.name), error)
                })?,
            };
            if let Some(reason) = reason {
                self.tell(Event::Unsupported { case, reason })?;
            }
        }
        Ok(())
    }

    /// Passes an event on, then takes it in.
    pub(super) fn tell(&mut self, event: Event) -> Result<(), Error> {
        (self.observe)(&event).map_err(Error::Unobserved)?;
        self.measured.apply(&event);
        Ok(())
    }

    /// Cases that still run, by index into the plan.
    pub(super) fn live(&self) -> Vec<usize> {
        let cases = self.measured.cases.iter().enumerate();
        cases
            .filter(|(_, data)| data.live())
            .map(|(index, _)| index)
            .collect()
    }

    /// Those of them that have a part in an epoch.
    pub(super) fn due_in(&self, epoch: usize) -> Vec<usize> {
        let live = self.live().into_iter();
        live.filter(|&case| self.plan.runs_in(epoch, case))
            .collect()
    }

    /// Seconds by the clock.
    pub(super) fn now_s(&self) -> f64 {
        self.clock.now().as_secs_f64()
    }

    /// Seconds that the whole run took so far, earlier sessions included.
    pub(super) fn spent_s(&self) -> f64 {
        self.earlier_s + self.now_s() - self.begun_s
    }

    pub(super) fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Prepares a case, unless the run is to end. `None` where that made the case invalid.
    pub(super) fn prepare(
        &mut self,
        loaded: &mut dyn Loaded,
        epoch: usize,
        case: usize,
    ) -> Result<Option<()>, Halt> {
        let plan = self.plan;
        self.check_interrupt()?;
        let outcome = loaded.prepare(&plan.cases[case]);
        self.judge(epoch, case, "preparing", outcome)
    }

    /// Times one batch of a case, unless the run is to end. `None` where that made the case invalid.
    pub(super) fn trial(
        &mut self,
        loaded: &mut dyn Loaded,
        epoch: usize,
        case: usize,
        batch: Batch,
    ) -> Result<Option<Trial>, Halt> {
        let plan = self.plan;
        self.check_interrupt()?;
        let outcome = loaded
            .trial(&plan.cases[case], batch)
            .and_then(|trial| finite(trial).map_err(Fault::Invalid));
        self.judge(epoch, case, "timing", outcome)
    }

    pub(super) fn check_interrupt(&self) -> Result<(), Halt> {
        if self.interrupted() {
            return Err(Halt::Interrupted);
        }
        Ok(())
    }

    /// Tells of a case that has become invalid. A fault that comes with an interruption is no finding:
    /// the signal may have reached whatever failed.
    fn judge<T>(
        &mut self,
        epoch: usize,
        case: usize,
        doing: &str,
        outcome: Result<T, Fault>,
    ) -> Result<Option<T>, Halt> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.interrupted() => Err(Halt::Interrupted),
            Err(Fault::Invalid(problem)) => {
                self.tell(Event::Invalid {
                    epoch,
                    case,
                    problem,
                })?;
                Ok(None)
            }
            Err(Fault::Enough { code, text }) => {
                self.tell(Event::Warned(Warning::new(code, &text)))?;
                Err(Halt::Enough)
            }
            Err(Fault::Broken(error)) => {
                let name = &self.plan.cases[case].name;
                Err(self.broken(format!("{doing} {name} in epoch {epoch}"), error))
            }
        }
    }

    /// The sentinel's value, unless the run is to end.
    pub(super) fn sentinel(&self, sentinel: &mut dyn Sentinel) -> Result<f64, Halt> {
        self.check_interrupt()?;
        let outcome = sentinel.trial().and_then(|value| {
            if value.is_finite() {
                Ok(value)
            } else {
                Err(anyhow!("its value is {value}"))
            }
        });
        outcome.map_err(|error| self.broken("timing the sentinel".to_owned(), error))
    }

    /// What something that failed ends the run with.
    pub(super) fn broken(&self, doing: String, source: anyhow::Error) -> Halt {
        if self.interrupted() {
            return Halt::Interrupted;
        }
        Halt::Failed(Error::Broken { doing, source })
    }
}

/// The trial, if all its numbers are numbers; JSON has no others.
fn finite(trial: Trial) -> Result<Trial, Problem> {
    let secondary = trial.secondary.iter().map(|(name, &v)| (name.as_str(), v));
    let odd = [("value", trial.value), ("elapsed_ns", trial.elapsed_ns)]
        .into_iter()
        .chain(secondary)
        .find(|(_, value)| !value.is_finite());
    match odd {
        None => Ok(trial),
        Some((name, value)) => Err(Problem {
            check: name.to_owned(),
            expected: "a number".to_owned(),
            got: value.to_string(),
            detail: "the trial was not timed rightly: a division by zero operations, or a clock \
                     that failed"
                .to_owned(),
        }),
    }
}
