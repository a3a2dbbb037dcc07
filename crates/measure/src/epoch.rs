//! An epoch: everything loaded afresh, prepared, calibrated the first time, warmed up; then a few
//! rounds; then unloaded, whatever happened.

use crate::{
    Event,
    calibrate::{self, calibrate},
    run::{Halt, Run},
    schedule::{Turn, turns},
    stopping::rounds,
};
use bpfcost_model::{Batch, LoadedEpoch, Sentinel, SentinelTrial, Sizing};

/// The warm-up trial is the batch divided by this: 1 ms at the usual goal fills caches and trains
/// branch predictors, and adds 3 % to an epoch of three rounds.
const WARM_UP_DIVISOR: u64 = 10;

impl Run<'_> {
    /// Runs the next epoch. It counts as finished once it is unloaded.
    pub(super) fn epoch(&mut self, sentinel: Option<&mut (dyn Sentinel + '_)>) -> Result<(), Halt> {
        let begun = self.now_s();
        self.check_interrupt()?;
        let rounds_s = self.with_load(|run, loaded| run.inside(begun, loaded, sentinel))?;
        let seconds = self.now_s() - begun;
        self.emit(Event::EpochFinished {
            epoch: self.epoch,
            seconds,
            rounds_s,
        })?;
        Ok(())
    }

    /// Loads everything, does `inside`, and unloads it, whatever came of it.
    pub(super) fn with_load<T>(
        &mut self,
        inside: impl FnOnce(&mut Self, &mut dyn LoadedEpoch) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        let epoch = self.measured.epochs();
        self.epoch = epoch;
        let mut loaded = self
            .experiment
            .load(&self.plan.setup(&self.due_now(), epoch))
            .map_err(|error| self.halt(format!("loading epoch {epoch}"), error))?;
        let outcome = inside(self, loaded.as_mut());
        let unloaded = loaded.unload().map_err(|source| super::Error::Broken {
            doing: format!("unloading epoch {epoch}"),
            source,
        });
        match (outcome, unloaded) {
            // What stays loaded is worse than an interruption, but not than what broke before.
            (Ok(_) | Err(Halt::Interrupted | Halt::Enough), Err(error)) => Err(error.into()),
            (outcome, _) => outcome,
        }
    }

    /// Runs an epoch from the load to the last round; returns the seconds of the rounds.
    fn inside(
        &mut self,
        begun: f64,
        loaded: &mut dyn LoadedEpoch,
        sentinel: Option<&mut (dyn Sentinel + '_)>,
    ) -> Result<f64, Halt> {
        self.emit(Event::EpochStarted {
            epoch: self.epoch,
            load_s: self.now_s() - begun,
            kernel_bytes: loaded.kernel_bytes(),
        })?;
        for case in self.due_now() {
            self.prepare(loaded, case)?;
        }
        let calibrating = self.now_s();
        for case in self.due_now() {
            if self.measured.cases[case].calibration.is_none() {
                self.calibrate(loaded, case)?;
            }
        }
        self.calibrating_s += self.now_s() - calibrating;
        let rounds = rounds(self.plan) as usize;
        if self.plan.counts() {
            let begun = self.now_s();
            self.count_rounds(loaded, rounds)?;
            return Ok(self.now_s() - begun);
        }
        for case in self.due_now() {
            if let Some(batch) = warm_up(self.plan.cases[case].sizing, self.batch(case)) {
                self.trial(loaded, case, batch)?;
            }
        }
        let begun = self.now_s();
        self.time_rounds(loaded, rounds, sentinel)?;
        let rounds_s = self.now_s() - begun;
        for case in self.due_now() {
            self.conclude(loaded, case)?;
        }
        Ok(rounds_s)
    }

    /// Rounds of timed trials: each case once per round, each round in its own order.
    fn time_rounds(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        rounds: usize,
        mut sentinel: Option<&mut (dyn Sentinel + '_)>,
    ) -> Result<(), Halt> {
        let blocks = self.plan.blocks();
        for round in 0..rounds {
            if round > 0 && self.late() {
                break;
            }
            for turn in turns(self.plan.seed, self.epoch, round, &blocks) {
                match turn {
                    Turn::Case(case) if self.measured.cases[case].live() => {
                        let batch = self.batch(case);
                        if let Some(trial) = self.trial(loaded, case, batch)? {
                            self.emit(Event::Trial {
                                epoch: self.epoch,
                                round,
                                case,
                                trial,
                            })?;
                        }
                    }
                    Turn::Case(_) => {}
                    Turn::Sentinel => {
                        if let Some(sentinel) = &mut sentinel {
                            let SentinelTrial { value, anchor } = self.sentinel(*sentinel)?;
                            self.emit(Event::Sentinel {
                                epoch: self.epoch,
                                value,
                                anchor,
                            })?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds a case's batch in the state that is measured, and reports anything odd about it.
    pub(super) fn calibrate(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
    ) -> Result<(), Halt> {
        let plan = self.plan;
        let planned = &plan.cases[case];
        if plan.counts() {
            if let Some(calibration) = self.calibrate_count(loaded, case)? {
                self.emit(Event::Calibrated { case, calibration })?;
            }
            return Ok(());
        }
        let goal_ns = planned.batch_ns.unwrap_or(plan.goal_ns);
        let outcome = calibrate(planned.sizing, goal_ns, |batch| {
            let trial = self.trial(loaded, case, batch);
            trial.map_err(Some)?.ok_or(None)
        });
        let calibration = match outcome {
            Ok(calibration) => calibration,
            Err(None) => return Ok(()), // invalid now, and already reported
            Err(Some(halt)) => return Err(halt),
        };
        self.emit(Event::Calibrated { case, calibration })?;
        if let Some(warning) = calibrate::warning(&planned.name, &calibration) {
            self.emit(Event::Warned(warning))?;
        }
        Ok(())
    }

    /// The batch that calibration found.
    pub(super) fn batch(&self, case: usize) -> Batch {
        let calibration = self.measured.cases[case].calibration;
        calibration.map_or(Batch(1), |calibration| calibration.batch)
    }
}

/// The batch of the trial that is discarded at the start of an epoch. A fixed batch is part of what the case
/// means, so it stays unchanged. Windows are warmed by their experiment, once an epoch, because a window is
/// long and does not warm what the next one needs.
fn warm_up(sizing: Sizing, batch: Batch) -> Option<Batch> {
    match sizing {
        Sizing::Fixed(_) => Some(batch),
        Sizing::Calibrated { .. } => Some(Batch((batch.0 / WARM_UP_DIVISOR).max(1))),
        Sizing::Window(_) => None,
    }
}
