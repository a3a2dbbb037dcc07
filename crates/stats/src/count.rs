//! Counts: the value of a case whose clock counts instructions.
//!
//! Each sample is (T(2N) − T(N)) / N, of two batches without an interruption. If the work is the same every time,
//! so is the sample, except for the clock's own rounding: the count is the value on which most samples agree. If no
//! value has a majority, the work depends on a state that differs from batch to batch (of a table, say). The count
//! is then the median over the batches, which an undetected interruption hardly changes. It repeats from load to
//! load if every load goes through the same states.
//!
//! The count is not the smallest value that repeats: an interruption in the smaller of the two batches makes a
//! sample smaller, by nearly the same amount every time, and occasional work makes samples of several values, each
//! of which repeats (docs/evidence/counting.md).

use crate::{pairwise::sorted, sample::median};

/// The number of samples that must agree on a count; they must also be more than half of all.
pub const REPEATS: usize = 3;

/// A clock reading is up to one instruction below the truth, so that the difference of two batches,
/// each the difference of two readings, is off by up to two; the rest is for the division.
const ROUNDING: f64 = 2.01;

/// The count of instructions of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// Instructions per operation: a whole number wherever one is within the clock's rounding.
    pub value: f64,
    /// Samples that agree on it; 0 where none repeats and `value` is the median.
    pub repeats: usize,
}

/// The count of samples that were taken with batches of `ops` and twice `ops` operations, by the clock's
/// rounding over so many. `None` without a finite sample.
#[must_use]
pub fn count(samples: &[f64], ops: u64) -> Option<Count> {
    let sorted_samples = sorted(samples);
    let rounding = ROUNDING / ops.max(1) as f64;
    // What more than half agree on holds the middle one. Two samples are each off by as much.
    let middle = median(&sorted_samples)?;
    let alike: Vec<f64> = sorted_samples
        .iter()
        .copied()
        .filter(|sample| (sample - middle).abs() <= 2.0 * rounding)
        .collect();
    let (value, repeats) = if alike.len() >= REPEATS && 2 * alike.len() > sorted_samples.len() {
        (median(&alike)?, alike.len())
    } else {
        (middle, 0)
    };
    let whole = value.round();
    Some(Count {
        value: if (value - whole).abs() <= rounding {
            whole
        } else {
            value
        },
        repeats,
    })
}
