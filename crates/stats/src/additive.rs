//! Additivity of costs: is what one thing adds the same with another thing present?
//!
//! Four cases measured in the same epochs: with neither thing, with the first, with the second, with both.
//! If costs add up, then (both − first) − (second − neither) is zero. This *residual* is taken epoch by
//! epoch, so that what an epoch does to all four cancels, and inferred from as any difference: estimate by
//! Hodges–Lehmann, exact signed-rank interval and p-value. Where noise strikes each case alike it is
//! symmetric about zero when costs add up, whatever its shape: exchanging `both` with `first` and `neither`
//! with `second` turns its sign, and with additive costs nothing else.
//!
//! The answer falls in this order:
//!
//! 1. [`Additive::Yes`] where the 90 % interval lies within ± the tolerance, a share of the whole: two
//!    one-sided tests, as for `Same`; what is too small to matter is no finding, however sure it is.
//! 2. [`Additive::No`] where Holm over all the sums of the run rejects at [`FALSE_ALARM_LEVEL`]: at most
//!    5 % of runs in which everything adds up say even once that something doesn't.
//! 3. [`Additive::Yes`] where the 95 % interval holds zero: they add up as far as can be seen. The interval
//!    says how far that is, and must be shown beside the answer.
//! 4. else [`Additive::CantTell`]: too few epochs for an interval or for Holm, or an interval that leaves
//!    out zero as one in twenty does by chance.

use crate::estimate::{Estimate, signed_rank_interval, signed_rank_p};
use crate::holm::holm;
use crate::pairwise::sorted;
use crate::power::FALSE_ALARM_LEVEL;
use crate::verdict::EQUIVALENCE_CONFIDENCE;

/// Four cases by epoch, paired by their places; NaN where an epoch has no value.
#[derive(Debug, Clone, Copy)]
pub struct Square<'a> {
    /// The case without either thing.
    pub neither: &'a [f64],
    /// The case with the first thing.
    pub first: &'a [f64],
    /// The case with the second thing.
    pub second: &'a [f64],
    /// The case with both things.
    pub both: &'a [f64],
}

impl Square<'_> {
    /// (both − first) − (second − neither), of the epochs that have all four.
    #[must_use]
    pub fn residuals(&self) -> Vec<f64> {
        let pairs = self.both.iter().zip(self.first);
        let others = self.second.iter().zip(self.neither);
        pairs
            .zip(others)
            .map(|((both, first), (second, neither))| (both - first) - (second - neither))
            .filter(|residual| residual.is_finite())
            .collect()
    }
}

/// One sum: its residuals, an epoch each, and how large one must be to matter, in their unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sum {
    /// See [`Square::residuals`].
    pub residuals: Vec<f64>,
    /// A residual within ± this is none. Negative or NaN reads as 0.
    pub tolerance: f64,
}

/// The answer to whether the parts of a sum add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Additive {
    /// The parts add up, as far as the interval reaches.
    Yes,
    /// The parts don't add up: what the one adds depends on the other.
    No,
    /// The data does not resolve it.
    CantTell,
}

/// The residual of one sum and the answer from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SumVerdict {
    /// Epochs that have all four cases.
    pub epochs: usize,
    /// The residual with its 95 % interval, for this sum alone; `None` below 6 epochs.
    pub residual: Option<Estimate>,
    /// Exact two-sided p-value, before Holm.
    pub p: f64,
    /// The answer.
    pub additive: Additive,
}

/// Judges all sums of a run together, once, at its end. The result keeps their order.
#[must_use]
pub fn judge_sums(sums: &[Sum]) -> Vec<SumVerdict> {
    let p_values: Vec<f64> = sums
        .iter()
        .map(|sum| signed_rank_p(&sum.residuals))
        .collect();
    let rejected = holm(&p_values, FALSE_ALARM_LEVEL);
    sums.iter()
        .zip(p_values)
        .zip(rejected)
        .map(|((sum, p), rejected)| {
            let residual = Estimate::for_difference(&sum.residuals);
            let within = sum.tolerance > 0.0
                && signed_rank_interval(&sum.residuals, EQUIVALENCE_CONFIDENCE)
                    .is_some_and(|i| -sum.tolerance <= i.low && i.high <= sum.tolerance);
            let holds_zero = residual.is_some_and(|e| e.interval().contains(0.0));
            SumVerdict {
                epochs: sorted(&sum.residuals).len(),
                residual,
                p,
                additive: if (residual.is_some() && within) || (holds_zero && !rejected) {
                    Additive::Yes
                } else if rejected {
                    Additive::No
                } else {
                    Additive::CantTell
                },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs around a residual.
    fn sum(epochs: usize, centre: f64, wobble: f64, tolerance: f64) -> Sum {
        let middle = (epochs as f64 - 1.0) / 2.0;
        Sum {
            residuals: (0..epochs)
                .map(|epoch| centre + wobble * (epoch as f64 - middle))
                .collect(),
            tolerance,
        }
    }

    fn answer(sum: &Sum) -> Additive {
        judge_sums(std::slice::from_ref(sum))[0].additive
    }

    #[test]
    fn the_residual_is_what_the_second_adds_to_the_first_and_not_alone() {
        let square = Square {
            neither: &[10.0, 11.0, f64::NAN, 10.0],
            first: &[30.0, 31.0, 30.0, 30.0],
            second: &[35.0, 36.0, 35.0, 35.0],
            both: &[55.0, 59.0, 55.0],
        };
        assert_eq!(square.residuals(), [0.0, 3.0]);
    }

    #[test]
    fn answers_in_their_order() {
        assert_eq!(answer(&sum(12, 0.05, 0.1, 0.0)), Additive::Yes);
        assert_eq!(answer(&sum(12, 3.0, 0.1, 0.0)), Additive::No);
        // Significant, and too small to matter.
        assert_eq!(answer(&sum(12, 3.0, 0.1, 5.0)), Additive::Yes);
        assert_eq!(answer(&sum(12, 3.0, 0.1, f64::NAN)), Additive::No);
    }

    #[test]
    fn too_few_epochs_tell_nothing() {
        assert_eq!(answer(&sum(5, 3.0, 0.1, 5.0)), Additive::CantTell);
        assert_eq!(answer(&sum(0, 0.0, 0.0, 1.0)), Additive::CantTell);
        // An interval there is, but 20 sums ask for more than 6 epochs can say.
        let many = vec![sum(6, 3.0, 0.1, 0.0); 20];
        let judged = judge_sums(&many);
        assert!(judged.iter().all(|one| one.residual.is_some()));
        assert!(judged.iter().all(|one| one.additive == Additive::CantTell));
    }

    #[test]
    fn one_among_many_needs_more() {
        // Zero is just outside of its interval: alone a finding at 5 %, not at 4; and not among ten.
        let near = sum(12, 1.15, 0.4, 0.0);
        let mut family = vec![sum(12, 0.05, 0.4, 0.0); 9];
        family.push(near);
        let judged = judge_sums(&family)[9];
        assert!(judged.residual.unwrap().low > 0.0, "{judged:?}");
        assert_eq!(judged.additive, Additive::CantTell);
    }
}
