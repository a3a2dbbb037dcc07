//! A run under way, as its parts share it: passes events on, and decides what a fault ends.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result as AnyResult, anyhow};

use crate::{Clock, Error, Event, LoadSentinel, Measurements, Plan, Warning};
use bpfcost_model::{
    Batch, Experiment, Fault, LoadedEpoch, Observed, Problem, Sentinel, SentinelTrial, Trial,
};

/// A run under way.
pub(super) struct Run<'a> {
    pub(super) experiment: &'a dyn Experiment,
    pub(super) usual_sentinel: LoadSentinel<'a>,
    pub(super) plan: &'a Plan,
    pub(super) clock: &'a dyn Clock,
    pub(super) interrupt: &'a AtomicBool,
    /// When this session began, by the clock.
    pub(super) begun_s: f64,
    /// Seconds of earlier sessions.
    pub(super) earlier_s: f64,
    /// Seconds of calibration in this session: no later epoch does it again.
    pub(super) calibrating_s: f64,
    /// The one under way.
    pub(super) epoch: usize,
    pub(super) measured: Measurements,
    pub(super) observe: &'a mut dyn FnMut(&Event) -> AnyResult<()>,
}

/// The reason for which a run does not go on.
pub(super) enum Halt {
    /// The run was interrupted.
    Interrupted,
    /// No further trial may follow.
    Enough,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Failed(error)
    }
}

impl Run<'_> {
    /// Passes an event on, then takes it in.
    pub(super) fn emit(&mut self, event: Event) -> Result<(), Error> {
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

    /// The live cases that run in this epoch.
    pub(super) fn due_now(&self) -> Vec<usize> {
        let live = self.live().into_iter();
        live.filter(|&case| self.plan.runs_in(self.epoch, case))
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

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Prepares a case, unless the run is to end. `None` where that made the case invalid.
    pub(super) fn prepare(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
    ) -> Result<Option<()>, Halt> {
        let plan = self.plan;
        self.check_interrupt()?;
        let outcome = loaded.prepare(&plan.cases[case]);
        let prepared = self.judge(case, "preparing", outcome)?;
        if prepared.is_some() && self.measured.cases[case].observed.is_none() {
            let observed = loaded.observed(&plan.cases[case]);
            let Some(Observed { facts, warnings }) = self.judge(case, "observing", observed)?
            else {
                return Ok(None);
            };
            for (code, text) in warnings {
                let warning = Warning::new(code, text);
                // Each epoch and each case may have it.
                if !self.measured.warnings.contains(&warning) {
                    self.emit(Event::Warned(warning))?;
                }
            }
            if let Some(facts) = facts {
                self.emit(Event::Observed { case, facts })?;
            }
        }
        Ok(prepared)
    }

    /// Times one batch of a case, unless the run is to end. `None` where that made the case invalid.
    pub(super) fn trial(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
        batch: Batch,
    ) -> Result<Option<Trial>, Halt> {
        let plan = self.plan;
        self.check_interrupt()?;
        let outcome = loaded
            .trial(&plan.cases[case], batch)
            .and_then(|trial| finite(trial).map_err(Fault::Invalid));
        self.judge(case, "timing", outcome)
    }

    /// Proves a case once more after the rounds, unless the run is to end.
    pub(super) fn conclude(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
    ) -> Result<(), Halt> {
        self.check_interrupt()?;
        let concluded = loaded.conclude(&self.plan.cases[case]);
        self.judge(case, "proving", concluded).map(drop)
    }

    pub(super) fn check_interrupt(&self) -> Result<(), Halt> {
        if self.is_interrupted() {
            return Err(Halt::Interrupted);
        }
        Ok(())
    }

    /// Reports a case that has become invalid. A fault during an interruption is no finding: the
    /// signal may have reached whatever failed.
    pub(super) fn judge<T>(
        &mut self,
        case: usize,
        doing: &str,
        outcome: Result<T, Fault>,
    ) -> Result<Option<T>, Halt> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.is_interrupted() => Err(Halt::Interrupted),
            Err(Fault::Invalid(problem)) => {
                self.emit(Event::Invalid {
                    epoch: self.epoch,
                    case,
                    problem,
                })?;
                Ok(None)
            }
            Err(Fault::Enough { code, text }) => {
                self.emit(Event::Warned(Warning::new(code, &text)))?;
                Err(Halt::Enough)
            }
            Err(Fault::Broken(error)) => {
                let name = &self.plan.cases[case].name;
                Err(self.halt(format!("{doing} {name} in epoch {}", self.epoch), error))
            }
        }
    }

    /// The sentinel's value, unless the run is to end.
    pub(super) fn sentinel(&self, sentinel: &mut dyn Sentinel) -> Result<SentinelTrial, Halt> {
        self.check_interrupt()?;
        let outcome = sentinel.trial().and_then(|trial| {
            let value = trial.value;
            if value.is_finite() {
                Ok(trial)
            } else {
                Err(anyhow!("its value is {value}"))
            }
        });
        outcome.map_err(|error| self.halt("timing the sentinel".to_owned(), error))
    }

    /// The halt after a failed step: an interruption may be its cause.
    pub(super) fn halt(&self, doing: String, source: anyhow::Error) -> Halt {
        if self.is_interrupted() {
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
            detail: "the trial was timed incorrectly: a division by zero operations, or a clock \
                     that failed"
                .to_owned(),
        }),
    }
}
