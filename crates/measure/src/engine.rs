//! The run: epoch after epoch until there is a reason to stop. Each event is passed on before anything else is
//! done, so a kill at any moment loses at most the trial under way.

use std::sync::atomic::AtomicBool;

use anyhow::Result as AnyResult;

use crate::{
    Clock, Error, Event, Measurements, Plan, Stop,
    run::{Halt, Run},
    stopping::imprecise,
};
use bpfcost_model::{Experiment, Sentinel, Setup};

/// Loads the usual sentinel, for experiments that have none of their own.
pub type LoadSentinel<'a> = &'a dyn Fn(&Setup) -> AnyResult<Box<dyn Sentinel>>;

/// Measures `plan`, and returns all that was seen.
///
/// `sentinel` is for an experiment that brings none of its own. `resumed` is what earlier sessions of the same plan saw ([`Measurements::new`] where there are none); the
/// run goes on with the next epoch, with their calibrations, and their time counts. `observe` receives
/// each [`Event`] as it happens; where it fails, the run ends. Setting `interrupt` ends it after the
/// trial under way.
///
/// Whatever the way out, each epoch that was loaded is unloaded.
pub fn measure(
    experiment: &dyn Experiment,
    sentinel: LoadSentinel<'_>,
    plan: &Plan,
    clock: &dyn Clock,
    interrupt: &AtomicBool,
    resumed: Measurements,
    observe: &mut dyn FnMut(&Event) -> AnyResult<()>,
) -> Result<Measurements, Error> {
    if resumed.cases.len() != plan.cases.len() {
        return Err(Error::OtherPlan {
            expected: plan.cases.len(),
            found: resumed.cases.len(),
        });
    }
    let mut run = Run {
        experiment,
        usual_sentinel: sentinel,
        plan,
        clock,
        interrupt,
        begun_s: clock.now().as_secs_f64(),
        earlier_s: resumed.seconds(),
        calibrating_s: 0.0,
        epoch: 0,
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
        run.emit(Event::Warned(warning))?;
    }
    run.emit(Event::Stopped { stop })?;
    Ok(run.measured)
}

impl Run<'_> {
    /// Epochs until there is a reason to stop.
    fn epochs(&mut self) -> Result<Stop, Halt> {
        self.find_unsupported()?;
        if let Some(stop) = self.due()? {
            return Ok(stop);
        }
        let setup = self.plan.setup(&self.live(), self.measured.epochs());
        let mut sentinel = self
            .sentinel_for(&setup)
            .map_err(|error| self.halt("loading the sentinel".to_owned(), error))?;
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

    /// The experiment's own sentinel, or else the usual one. None where instructions are counted, because counts don't
    /// drift, and where the experiment gives it up.
    fn sentinel_for(&self, setup: &Setup) -> AnyResult<Option<Box<dyn Sentinel>>> {
        let waivers = self.experiment.description().waivers;
        if self.plan.counts() || waivers.sentinel.is_some() {
            return Ok(None);
        }
        match self.experiment.sentinel(setup)? {
            Some(own) => Ok(Some(own)),
            None => (self.usual_sentinel)(setup).map(Some),
        }
    }

    fn find_unsupported(&mut self) -> Result<(), Halt> {
        for case in self.live() {
            let planned = &self.plan.cases[case];
            let cpus = planned.cpus;
            let reason = if self.plan.counts() && cpus > 1 {
                Some(format!(
                    "needs {cpus} CPUs at once, and a guest that counts instructions has one; run it on \
                     host or in vm:KERNEL"
                ))
            } else {
                self.experiment.unsupported(planned).map_err(|error| {
                    self.halt(format!("checking whether {} can run", planned.name), error)
                })?
            };
            if let Some(reason) = reason {
                self.emit(Event::Unsupported { case, reason })?;
            }
        }
        Ok(())
    }
}
