//! Two modes among the epochs of one case.
//!
//! Some cases settle, load by load, into one of two states (a map lands well or badly in the cache). One
//! number between the two describes neither, so both are shown with their shares.
//!
//! Decided on the logs of the epoch medians: the split into a lower and an upper group that leaves the
//! least variance within groups (Otsu 1979; two-means in one dimension). Even a normal sample loses 64 %
//! of its variance by its best split, and more when small, so the share that is left is compared with a
//! bound by sample size, the quantile of normal samples found by simulation.

use crate::pairwise::sorted;
use crate::sample::median;

/// Fewest epochs in which two modes can be told.
pub const MIN_EPOCHS: usize = 8;

/// The smallest share of the epochs that is called a mode rather than outliers.
pub const MIN_SHARE: f64 = 0.12;

/// The smallest relative distance of two modes that is worth telling; 0.002 is 0.2 %.
pub const MIN_DISTANCE: f64 = 0.002;

/// One of two modes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// The median of its epochs, in the unit of the values.
    pub value: f64,
    /// Its share of the epochs, 0 to 1.
    pub share: f64,
}

/// The two modes of a case's epoch medians, the lower first; `None` where one describes it. Values that
/// are not above zero are passed over.
#[must_use]
pub fn two_modes(epochs: &[f64]) -> Option<[Mode; 2]> {
    let values: Vec<f64> = sorted(epochs).into_iter().filter(|&v| v > 0.0).collect();
    let n = values.len();
    if n < MIN_EPOCHS {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let (split, left) = best_split(&logs);
    let smaller = split.min(n - split);
    if smaller < 2 || (smaller as f64) < MIN_SHARE * n as f64 || left > bound(n) {
        return None;
    }
    let mode = |part: &[f64]| {
        Some(Mode {
            value: median(part)?,
            share: part.len() as f64 / n as f64,
        })
    };
    let [low, high] = [mode(&values[..split])?, mode(&values[split..])?];
    (high.value / low.value >= 1.0 + MIN_DISTANCE).then_some([low, high])
}

/// Where to cut ascending values so that least variance is left within the parts, and the share of the
/// variance that is left: 0 for two points, 0.36 for a large normal sample.
fn best_split(values: &[f64]) -> (usize, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let total: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let mut best = (1, 1.0);
    let mut sum = 0.0;
    for (i, value) in values.iter().enumerate().take(values.len() - 1) {
        sum += value - mean;
        let below = (i + 1) as f64;
        let between = sum.powi(2) * n / (below * (n - below));
        let left = (1.0 - between / total).max(0.0);
        if left < best.1 {
            best = (i + 1, left);
        }
    }
    best
}

/// The share of variance that must not be exceeded to call a sample of `n` two-moded.
fn bound(n: usize) -> f64 {
    0.30 - 1.6 / n as f64
}
