//! The differences between two cases, epoch by epoch.

use crate::estimate::Interval;

/// One comparison's differences between case and baseline, an epoch each.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Differences {
    /// case − baseline, in the unit of the values.
    pub absolute: Vec<f64>,
    /// ln case − ln baseline; only epochs in which both are above zero.
    pub log_ratio: Vec<f64>,
    /// Epochs left out because a side had no finite value there.
    pub missing: usize,
    /// The lengths added to the ends of the relative intervals, on the log scale, for what the values may leave out
    /// without notice: `low` at most 0, `high` at least 0.
    pub unnoticed: Interval,
}

impl Differences {
    /// Pairs two cases' epoch medians by their places. An epoch that either lacks (NaN, or beyond the
    /// end of the shorter) is counted as missing.
    #[must_use]
    pub fn pair(case: &[f64], baseline: &[f64]) -> Self {
        let mut pairs = Self {
            missing: case.len().abs_diff(baseline.len()),
            ..Self::default()
        };
        for (&case, &baseline) in case.iter().zip(baseline) {
            if !(case.is_finite() && baseline.is_finite()) {
                pairs.missing += 1;
                continue;
            }
            pairs.absolute.push(case - baseline);
            if case > 0.0 && baseline > 0.0 {
                pairs.log_ratio.push(case.ln() - baseline.ln());
            }
        }
        pairs
    }
}
