//! Trials on targets whose clock counts instructions. The cost of an operation is then a number that repeats: there
//! is no noise to average out, and only interruptions must be excluded.
//!
//! A trial is two batches, of N operations and of 2N. Their difference over N is what an operation
//! costs: all that is paid once a batch cancels. A batch into which the machine's timer ticked counts
//! the tick's instructions too (some 3,000), so it is run again until there is one without. N is a
//! power of two, so that work which the kernel does every so many operations (it refills a CPU's free
//! list of an LRU table by 128) falls into N operations as often every time.

use crate::{
    Calibration, Event,
    calibrate::calibrate,
    run::{Halt, Run},
};
use bpfcost_model::{Batch, Fault, LoadedEpoch, Problem, Sizing, Trial};

/// Batches of one trial until one without a tick is found; the one with the fewest counts else. Batches
/// begin just after a tick where the experiment can have it so, and then the first try will do.
const MAX_TRIES: u32 = 24;

/// The same for a batch whose length is part of what the case means: if it is longer than a tick, no
/// try is without.
const MAX_FIXED_TRIES: u32 = 4;

/// Batches in which the thread may sleep, by chance: it meets a lock of the kernel that another one holds. Work that sleeps
/// itself does so in all of them.
const MAX_SLEPT_TRIES: u32 = 8;

/// The length to which a batch is calibrated where instructions are counted, in nanoseconds of the target's clock, one
/// of which is an instruction. A trial's larger batch is twice that, less than 1 ms: the shortest time
/// between two ticks.
pub const COUNTING_GOAL_NS: f64 = 4e5;

/// Loads of a run, and of one with `--quick`: the fewest that have a spread.
const LOADS: [usize; 2] = [5, 2];
/// Trials of a case in each load. Where the work is the same every time, three would do; these are for the
/// medians of those whose work depends on a table's state.
const ROUNDS: [u32; 2] = [8, 6];

/// Epochs of a run that counts.
pub(super) fn loads(quick: bool) -> usize {
    LOADS[usize::from(quick)]
}

/// Rounds of each of its epochs.
pub(super) fn rounds(quick: bool) -> u32 {
    ROUNDS[usize::from(quick)]
}

impl Run<'_> {
    /// Finds every case's batch on a separate load, which is then discarded: what a table costs may
    /// depend on its whole history, so all loads that count must have the same one.
    pub(super) fn calibrate_apart(&mut self) -> Result<(), Halt> {
        let unknown = |run: &Self, case: &usize| run.measured.cases[*case].calibration.is_none();
        if !self.live().iter().any(|case| unknown(self, case)) {
            return Ok(());
        }
        self.check_interrupt()?;
        self.with_load(|run, loaded| {
            for case in run.live() {
                run.prepare(loaded, case)?;
            }
            for case in run.live() {
                if unknown(run, &case) {
                    run.calibrate(loaded, case)?;
                }
            }
            Ok(())
        })
    }

    /// Runs all rounds of an epoch, case by case: counts have no drift that order could hide, cases that share a table
    /// leave the same traces in it in every load, and what is attached for a case stays so.
    pub(super) fn count_rounds(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        rounds: usize,
    ) -> Result<(), Halt> {
        for case in self.due_now() {
            let batch = self.batch(case);
            for round in 0..rounds {
                let Some(trial) = self.count(loaded, case, batch)? else {
                    break;
                };
                self.emit(Event::Trial {
                    epoch: self.epoch,
                    round,
                    case,
                    trial,
                })?;
            }
        }
        Ok(())
    }

    /// Runs one trial of a case. `None` if that made the case invalid.
    fn count(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
        batch: Batch,
    ) -> Result<Option<Trial>, Halt> {
        if let Sizing::Fixed(_) | Sizing::Window(_) = self.plan.cases[case].sizing {
            return self.quiet(loaded, case, batch, MAX_FIXED_TRIES);
        }
        let Some(once) = self.quiet(loaded, case, batch, MAX_TRIES)? else {
            return Ok(None);
        };
        let double = Batch(2 * batch.0);
        let Some(twice) = self.quiet(loaded, case, double, MAX_TRIES)? else {
            return Ok(None);
        };
        // As many as were asked for, but where operations come in sets.
        let more = twice.ops.saturating_sub(once.ops);
        let longer = twice.elapsed_ns - once.elapsed_ns;
        if more == 0 || longer <= 0.0 {
            let problem = Problem {
                check: "twice the batch".to_owned(),
                expected: "more operations, and more instructions".to_owned(),
                got: format!("{more} more operations, and {longer} more instructions"),
                detail: "the larger batch does not contain the smaller one".to_owned(),
            };
            return self.judge(case, "counting", Err(Fault::Invalid(problem)));
        }
        Ok(Some(Trial {
            value: longer / more as f64,
            ops: once.ops + twice.ops,
            elapsed_ns: once.elapsed_ns + twice.elapsed_ns,
            ticks: once.ticks + twice.ticks,
            secondary: twice.secondary,
            ..Trial::default()
        }))
    }

    /// A case's batch for counting. Never in doubt by noise, so that every run finds the same.
    pub(super) fn calibrate_count(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
    ) -> Result<Option<Calibration>, Halt> {
        let plan = self.plan;
        let sizing = match plan.cases[case].sizing {
            // A trial runs twice the batch.
            Sizing::Calibrated { most } => Sizing::Calibrated {
                most: most.map(|most| most / 2),
            },
            fixed => fixed,
        };
        let tries = match sizing {
            Sizing::Fixed(_) | Sizing::Window(_) => 1,
            Sizing::Calibrated { .. } => MAX_TRIES,
        };
        let outcome = calibrate(sizing, plan.goal_ns, |batch| {
            let trial = self.quiet(loaded, case, batch, tries);
            trial.map_err(Some)?.ok_or(None)
        });
        match outcome {
            Ok(calibration) => Ok(Some(Calibration {
                batch: match sizing {
                    Sizing::Fixed(_) | Sizing::Window(_) => calibration.batch,
                    Sizing::Calibrated { .. } => power_of_two(calibration.batch),
                },
                // The difference of N and 2N is the cost itself: there is nothing left to check.
                ratio: None,
                attempts: 0,
                traced: plan.cases[case].traced,
                ..calibration
            })),
            Err(None) => Ok(None),
            Err(Some(halt)) => Err(halt),
        }
    }

    /// The first of `tries` batches without a tick, or else the one with the fewest. The thread must not have slept in it:
    /// where all were idle, the clock jumps.
    fn quiet(
        &mut self,
        loaded: &mut dyn LoadedEpoch,
        case: usize,
        batch: Batch,
        tries: u32,
    ) -> Result<Option<Trial>, Halt> {
        let mut best: Option<Trial> = None;
        let mut slept = 0;
        let mut tried = 0;
        while tried < tries && slept < MAX_SLEPT_TRIES {
            let Some(trial) = self.trial(loaded, case, batch)? else {
                return Ok(None);
            };
            if trial.waits > 0 {
                slept += 1;
                continue;
            }
            tried += 1;
            if best.as_ref().is_none_or(|best| trial.ticks < best.ticks) {
                best = Some(trial);
            }
            if best.as_ref().is_some_and(|best| best.ticks == 0) {
                break;
            }
        }
        let problem = || Problem {
            check: "waits".to_owned(),
            expected: "a batch in which the thread does not sleep".to_owned(),
            got: format!("none of {slept}"),
            detail: "the CPU may have been idle, and then a clock that counts instructions jumps"
                .to_owned(),
        };
        self.judge(
            case,
            "counting",
            best.ok_or_else(|| Fault::Invalid(problem())),
        )
    }
}

/// The largest power of two that is not more.
fn power_of_two(batch: Batch) -> Batch {
    Batch(1 << batch.0.max(1).ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_powers_of_two() {
        for (found, batch) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (127, 64),
            (128, 128),
            (255, 128),
            (1000, 512),
        ] {
            assert_eq!(power_of_two(Batch(found)), Batch(batch));
        }
    }
}
