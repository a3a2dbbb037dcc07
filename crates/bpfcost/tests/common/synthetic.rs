//! Measurements that a run of some plan would make, by a function that says what each trial is.

use bpfcost_measure::{Calibration, Event, Measurements, Plan, Stop};
use bpfcost_model::{Batch, Case, Trial};

/// Trials of a case in an epoch.
pub const TRIALS: usize = 3;

/// A run of so many epochs; batches that are found by calibration have `batch` operations of `ns_per_op`.
/// `trial` gets the case, the epoch, and noise of up to one either way that is the same every time.
pub fn measured(
    plan: &Plan,
    epochs: usize,
    calibration: Option<(u64, f64)>,
    trial: impl Fn(&Case, usize, f64) -> Trial,
) -> Measurements {
    let mut measured = Measurements::new(plan);
    if let Some((batch, ns_per_op)) = calibration {
        for case in 0..plan.cases.len() {
            measured.apply(&Event::Calibrated {
                case,
                calibration: Calibration {
                    batch: Batch(batch),
                    ns_per_op,
                    ratio: Some(2.0),
                    attempts: 1,
                    traced: false,
                },
            });
        }
    }
    for epoch in 0..epochs {
        measured.apply(&Event::EpochStarted {
            epoch,
            load_s: 0.1,
            kernel_bytes: None,
        });
        for round in 0..TRIALS {
            for (case, of) in plan.cases.iter().enumerate() {
                measured.apply(&Event::Trial {
                    epoch,
                    round,
                    case,
                    trial: trial(of, epoch, noise(epoch, round, case)),
                });
            }
        }
        measured.apply(&Event::EpochFinished {
            epoch,
            seconds: 2.0,
            rounds_s: 1.0,
        });
    }
    measured.apply(&Event::Stopped { stop: Stop::Rounds });
    measured
}

/// Up to one either way, the same every time.
fn noise(epoch: usize, round: usize, case: usize) -> f64 {
    let mut mixed = (epoch * 1009 + round * 101 + case * 13 + 7) as u64;
    for _ in 0..3 {
        mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (mixed >> 29);
    }
    (mixed % 1000) as f64 / 500.0 - 1.0
}
