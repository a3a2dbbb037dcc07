//! Calibration: how many operations make a batch long enough to time, found in the very state that is
//! measured, and the check that twice the operations take twice the time.

use crate::{Calibration, Warning};
use bpfcost_model::{Batch, Sizing, Trial};

/// A batch whose time is at least this share of the goal is long enough to be scaled to it: clock reads
/// and the entry into the kernel are by then far below 1 % of it.
const ENOUGH: f64 = 0.25;

/// Maximum growth of the batch from one try to the next. Short batches overstate the cost of an
/// operation, so growth is careful only where operations get more expensive with their number (a table
/// that outgrows the cache): they rarely do so by more than a tenth of this.
const MAX_GROWTH: f64 = 100.0;

/// No batch is larger, in operations: at the usual goal of 10 ms that is 0.01 ns each, which nothing
/// takes. It ends the search where a clock stands still.
const MAX_OPS: u64 = 1_000_000_000;

/// The largest distance of T(2N) / T(N) from 2, as a share of it.
const TOLERANCE: f64 = 0.05;

/// The number of 2N/N checks after which it counts as failed. A disturbance of 2 % per trial (usual on
/// a virtual machine) fails one check in 13, and four in a row once in 30,000.
const ATTEMPTS: u32 = 4;

/// [`Warning::code`] of a failed 2N/N check.
pub const PROPORTIONALITY: &str = "proportionality";

/// Finds the batch of one case by timing it: near `goal_ns`, at least 1, within the case's cap.
///
/// No trial is longer than the batch found, apart from a last growth step that overshot. What `trial`
/// fails with is passed on.
pub(super) fn calibrate<E>(
    sizing: Sizing,
    goal_ns: f64,
    mut trial: impl FnMut(Batch) -> Result<Trial, E>,
) -> Result<Calibration, E> {
    let most = match sizing {
        Sizing::Fixed(size) | Sizing::Window(size) => {
            let batch = Batch(size.max(1));
            return Ok(Calibration {
                batch,
                ns_per_op: ns_per_op(&trial(batch)?),
                ratio: None,
                attempts: 0,
                traced: false,
            });
        }
        Sizing::Calibrated { most } => most.unwrap_or(MAX_OPS).clamp(1, MAX_OPS),
    };

    // The first call may meet cold caches, so that one operation seems long enough to be a batch.
    let (cold, warm) = (trial(Batch(1))?, trial(Batch(1))?);
    let mut seen = if cold.elapsed_ns < warm.elapsed_ns {
        cold
    } else {
        warm
    };
    // Operations may come in sets, and one of them is the smallest batch.
    let least = seen.ops.clamp(1, most);
    let scale_to_goal = |seen: &Trial| scale_to_goal(seen, goal_ns, most).max(least);
    while short(&seen, goal_ns) && seen.ops < most {
        seen = trial(Batch(scale_to_goal(&seen)))?;
    }

    let mut calibration = Calibration {
        batch: Batch(scale_to_goal(&seen)),
        ns_per_op: ns_per_op(&seen),
        ratio: None,
        attempts: 0,
        traced: false,
    };
    while calibration.attempts < ATTEMPTS && calibration.batch.0 >= 2 && !proportional(&calibration)
    {
        let half = calibration.batch.0 / 2;
        let once = trial(Batch(half))?;
        let twice = trial(Batch(2 * half))?;
        let batch = Batch(scale_to_goal(&twice));
        if short(&twice, goal_ns) && batch > calibration.batch {
            calibration.batch = batch; // what was seen before was disturbed: no check yet
            continue;
        }
        calibration = Calibration {
            batch,
            ns_per_op: ns_per_op(&twice),
            ratio: nearer_two(calibration.ratio, twice.elapsed_ns / once.elapsed_ns),
            attempts: calibration.attempts + 1,
            traced: false,
        };
    }
    Ok(calibration)
}

/// The warning for a case whose 2N/N check failed in every attempt; `None` otherwise.
pub(super) fn warning(case: &str, calibration: &Calibration) -> Option<Warning> {
    if calibration.attempts == 0 || proportional(calibration) {
        return None;
    }
    let ratio = calibration
        .ratio
        .map_or("no measurable time".to_owned(), |ratio| {
            format!("{ratio:.2} times as long")
        });
    Some(Warning {
        code: PROPORTIONALITY.to_owned(),
        text: format!(
            "{case}: twice the operations took {ratio} (expected 2.00 ± 5 %; best of {} attempts, \
             in batches of {} operations). Its cost per operation depends on the batch size, or \
             the machine was disturbed. Its number holds for batches of this size; run it again \
             on a quieter machine to see whether this stays",
            calibration.attempts, calibration.batch.0,
        ),
    })
}

/// Returns whether the 2N/N check was made and passed.
fn proportional(calibration: &Calibration) -> bool {
    calibration
        .ratio
        .is_some_and(|ratio| distance(ratio) <= TOLERANCE)
}

/// The distance of a ratio from 2, as a share of it.
fn distance(ratio: f64) -> f64 {
    (ratio / 2.0 - 1.0).abs()
}

/// The better of the ratios seen so far. One that is not a number is no ratio.
fn nearer_two(before: Option<f64>, now: f64) -> Option<f64> {
    [before, now.is_finite().then_some(now)]
        .into_iter()
        .flatten()
        .min_by(|a, b| distance(*a).total_cmp(&distance(*b)))
}

/// Returns whether a trial was too short to be scaled to the goal.
fn short(trial: &Trial, goal_ns: f64) -> bool {
    trial.elapsed_ns < ENOUGH * goal_ns
}

/// The batch that would take `goal_ns`, to judge by one that was seen; it grows within bounds.
fn scale_to_goal(seen: &Trial, goal_ns: f64, most: u64) -> u64 {
    let growth = goal_ns / seen.elapsed_ns;
    let growth = if growth.is_finite() && growth > 0.0 {
        growth.min(MAX_GROWTH)
    } else {
        MAX_GROWTH // the clock saw nothing pass
    };
    ((seen.ops as f64 * growth).round() as u64).clamp(1, most)
}

fn ns_per_op(trial: &Trial) -> f64 {
    trial.elapsed_ns / trial.ops.max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Operations come 64 at a time, as frames do: no batch is smaller than a set, and none of its size is
    /// taken for one operation.
    #[test]
    fn operations_that_come_in_sets_are_counted_as_they_come() {
        let found = |cost: f64| {
            let trial = |batch: Batch| {
                let ops = batch.0.next_multiple_of(64);
                Ok::<_, Infallible>(Trial {
                    value: cost,
                    ops,
                    elapsed_ns: cost * ops as f64,
                    ..Trial::default()
                })
            };
            let Ok(found) = calibrate(Sizing::Calibrated { most: None }, 4e5, trial);
            found.batch.0
        };
        assert_eq!(found(1000.0), 400);
        assert_eq!(found(2668.0), 150);
        assert_eq!(found(50_000.0), 64);
    }
}
