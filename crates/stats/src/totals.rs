//! The ratio of totals: all that a case took, by all that it did, against the same of its baseline.
//!
//! An epoch's median, and the Hodges–Lehmann estimate over epochs, drop what comes seldom: that makes them
//! precise, and blind to a cost that falls into one window of ten. The ratio of totals has it all. Its price
//! is that one rare window decides much of it, so its interval is wide where costs come seldom.
//!
//! The interval is Student's t over the jackknife's pseudo-values of the log ratio, one an epoch. It is widened
//! on the side to which they are skewed by Johnson's correction, and never narrowed: rare costs are skewed to the
//! side of more, and without that the interval ends too low. Of the estimators tried (the mean of log ratios,
//! Fieller's interval, BCa and t bootstraps over epochs, Johnson's interval), this one held most evenly; the
//! figures are in docs/evidence/seldom.md. No interval knows of a cost that no window of the run contained.
//!
//! Quenouille (1956) and Tukey (1958) for the jackknife; Johnson, N. J. (1978), "Modified t tests and
//! confidence intervals for asymmetrical populations", J. Am. Stat. Assoc. 73.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use crate::estimate::{CONFIDENCE, Estimate, Interval};
use crate::power::epochs_for_spread;
use crate::verdict::{Budget, Comparison, EQUIVALENCE_CONFIDENCE, Policy, Verdict, budget};

/// Fewest epochs with an interval: as many as the 90 % interval of the typical window needs.
pub const MIN_EPOCHS: usize = 5;

/// An epoch's part of the two sums of a quotient: nanoseconds and operations, or operations and seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Total {
    /// The numerator: nanoseconds, or operations.
    pub sum: f64,
    /// The denominator: operations, or seconds.
    pub per: f64,
}

impl Total {
    /// The total of some windows of a cost: values per operation, and operations.
    #[must_use]
    pub fn of_cost(values: &[f64], ops: &[f64]) -> Option<Self> {
        Self::over(values, ops, |value, ops| Total {
            sum: value * ops,
            per: ops,
        })
    }

    /// The same of a rate: operations per second, and operations.
    #[must_use]
    pub fn of_rate(values: &[f64], ops: &[f64]) -> Option<Self> {
        Self::over(values, ops, |value, ops| Total {
            sum: ops,
            per: ops / value,
        })
    }

    /// `None` without windows, and where a value lacks its operations.
    fn over(values: &[f64], ops: &[f64], one: impl Fn(f64, f64) -> Self) -> Option<Self> {
        if values.is_empty() || values.len() != ops.len() {
            return None;
        }
        let windows = values.iter().zip(ops).map(|(value, ops)| one(*value, *ops));
        Some(windows.fold(Total::default(), Total::plus))
    }

    fn plus(self, other: Self) -> Self {
        Total {
            sum: self.sum + other.sum,
            per: self.per + other.per,
        }
    }

    fn minus(self, other: Self) -> Self {
        Total {
            sum: self.sum - other.sum,
            per: self.per - other.per,
        }
    }

    /// The quotient.
    #[must_use]
    pub fn value(self) -> f64 {
        self.sum / self.per
    }
}

/// The log ratio of two cases' totals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TotalRatio {
    /// Epochs that both cases have.
    pub epochs: usize,
    /// The log ratio.
    pub log: f64,
    /// The 95 % interval of `log`; `None` below [`MIN_EPOCHS`].
    pub shown: Option<Interval>,
    /// The 90 % interval of `log`, which decides `Same` and the budget.
    pub deciding: Option<Interval>,
    /// The standard deviation of one epoch.
    spread: f64,
}

impl TotalRatio {
    /// Estimates the ratio from the totals of each epoch, paired by their places; an epoch that either lacks is left
    /// out. `None` if there is no ratio: no epoch, or nothing spent.
    #[must_use]
    pub fn from_epochs(case: &[Option<Total>], baseline: &[Option<Total>]) -> Option<Self> {
        let pairs: Vec<(Total, Total)> = case
            .iter()
            .zip(baseline)
            .filter_map(|(case, baseline)| Some(((*case)?, (*baseline)?)))
            .collect();
        let sums = pairs
            .iter()
            .fold((Total::default(), Total::default()), |all, one| {
                (all.0.plus(one.0), all.1.plus(one.1))
            });
        let ratio = |case: Total, baseline: Total| (case.value() / baseline.value()).ln();
        let log = ratio(sums.0, sums.1);
        if !log.is_finite() {
            return None;
        }
        let epochs = pairs.len();
        let n = epochs as f64;
        let without = |one: &(Total, Total)| ratio(sums.0.minus(one.0), sums.1.minus(one.1));
        let pseudo: Vec<f64> = pairs
            .iter()
            .map(|one| n * log - (n - 1.0) * without(one))
            .collect();
        let spread = Pseudo::new(&pseudo);
        let interval = |confidence: f64| {
            let [low, high] = spread.reach(confidence)?;
            Some(Interval {
                low: log - low,
                high: log + high,
            })
        };
        Some(TotalRatio {
            epochs,
            log,
            shown: interval(CONFIDENCE),
            deciding: interval(EQUIVALENCE_CONFIDENCE),
            spread: spread.sigma,
        })
    }

    /// The ratio − 1 with its 95 % interval.
    #[must_use]
    pub fn relative(&self) -> Option<Estimate> {
        let Interval { low, high } = self.shown?;
        let log = Estimate {
            value: self.log,
            low,
            high,
        };
        Some(log.map(f64::exp_m1))
    }

    /// Returns whether it differs from the ratio of the typical window: their 95 % intervals do not meet.
    #[must_use]
    pub fn is_apart(&self, typical: &Comparison) -> bool {
        let typical = typical.relative.map(|one| one.map(f64::ln_1p));
        let both = self.shown.zip(typical);
        both.is_some_and(|(total, typical)| total.high < typical.low || typical.high < total.low)
    }

    /// Epochs in all after which the total would be distinguished from a log ratio that lies `distance` away.
    #[must_use]
    pub fn epochs_to_resolve(&self, distance: f64, comparisons: usize) -> Option<usize> {
        epochs_for_spread(self.spread, distance, comparisons)
    }
}

/// Values of epochs whose mean is an estimate.
struct Pseudo {
    epochs: f64,
    sigma: f64,
    skew: f64,
}

impl Pseudo {
    fn new(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let moment = |power: i32| {
            let powers = values.iter().map(|one| (one - mean).powi(power));
            powers.sum::<f64>()
        };
        let sigma = (moment(2) / (n - 1.0)).sqrt();
        let skew = match moment(3) / n / sigma.powi(3) {
            skew if skew.is_finite() => skew,
            _ => 0.0,
        };
        Pseudo {
            epochs: n,
            sigma,
            skew,
        }
    }

    /// The lengths of the interval below and above the mean; `None` below [`MIN_EPOCHS`].
    fn reach(&self, confidence: f64) -> Option<[f64; 2]> {
        let Pseudo {
            epochs: n,
            sigma,
            skew,
        } = *self;
        if n < MIN_EPOCHS as f64 || !sigma.is_finite() {
            return None;
        }
        let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
        let t = student.inverse_cdf(0.5 + confidence / 2.0);
        let reach = t * sigma / n.sqrt();
        let shift = sigma * skew * (1.0 + 2.0 * t * t) / (6.0 * n);
        Some([reach - shift.min(0.0), reach + shift.max(0.0)])
    }
}

/// The mean of a case's epochs with its 95 % interval, which is that of the ratio of totals. What comes seldom is in it.
/// `None` below [`MIN_EPOCHS`] finite values.
#[must_use]
pub fn mean_of_epochs(values: &[f64]) -> Option<Estimate> {
    let finite: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    let [low, high] = Pseudo::new(&finite).reach(CONFIDENCE)?;
    let value = finite.iter().sum::<f64>() / finite.len() as f64;
    Some(Estimate {
        value,
        low: value - low,
        high: value + high,
    })
}

/// Holds what typical values say against the totals, where there are any: what is claimed of a cost must be true of both.
/// `Same` and `Within` need the total's 90 % interval within the margin and the budget too. `Slower` and `Faster` fall
/// where the total is known to point the other way, or is known to be nearer to none and may be none. `Over` needs one of
/// the two; but if values are `undisturbed`, the typical one, since a total also has what neighbours added.
#[must_use]
pub fn hold_against_totals(
    judged: Comparison,
    totals: Option<&TotalRatio>,
    policy: &Policy,
    undisturbed: bool,
) -> Comparison {
    let Some((totals, deciding)) = totals.and_then(|one| Some((one, one.deciding?))) else {
        return judged;
    };
    let reach = policy.margin.max(0.0).ln_1p();
    let shown = totals.shown.unwrap_or(deciding);
    let turned = |typical: Estimate| {
        let none = shown.contains(0.0) && totals.is_apart(&judged);
        none || (typical.value > 0.0 && shown.high < 0.0)
            || (typical.value < 0.0 && shown.low > 0.0)
    };
    let holds = match judged.verdict {
        Verdict::Same { .. } => -reach <= deciding.low && deciding.high <= reach,
        Verdict::Slower | Verdict::Faster => !judged.relative.is_some_and(turned),
        Verdict::Unresolved { .. } => true,
    };
    let both = |typical: Budget| {
        let total = budget(Some(deciding), policy.budget.unwrap_or(0.0), policy.sense);
        match (typical, total) {
            (Budget::Over, _) => Budget::Over,
            (_, Budget::Over) if !undisturbed => Budget::Over,
            (Budget::Within, Budget::Within) => Budget::Within,
            _ => Budget::CantTell,
        }
    };
    Comparison {
        // What typical values could show says nothing of the total.
        verdict: if holds {
            judged.verdict
        } else {
            Verdict::Unresolved { detectable: None }
        },
        detectable: judged.detectable.filter(|_| holds),
        budget: judged.budget.map(both),
        ..judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differences::Differences;
    use crate::verdict::{Sense, judge};

    /// Ten epochs of a thousand operations that cost `case` by epoch, against 100 each.
    fn ratio(case: &[f64]) -> TotalRatio {
        let total = |value: f64| Total::of_cost(&[value], &[1000.0]);
        let base: Vec<Option<Total>> = case.iter().map(|_| total(100.0)).collect();
        let case: Vec<Option<Total>> = case.iter().map(|value| total(*value)).collect();
        TotalRatio::from_epochs(&case, &base).unwrap()
    }

    fn policy(budget: f64) -> Policy {
        Policy {
            margin: 0.03,
            budget: Some(budget),
            sense: Sense::Cost,
        }
    }

    #[test]
    fn totals_are_all_by_all() {
        let cost = Total::of_cost(&[10.0, 40.0], &[300.0, 100.0]).unwrap();
        assert_eq!((cost.sum, cost.per, cost.value()), (7000.0, 400.0, 17.5));
        let rate = Total::of_rate(&[100.0, 50.0], &[200.0, 200.0]).unwrap();
        assert_eq!((rate.sum, rate.per), (400.0, 6.0));
        assert_eq!(Total::of_cost(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(Total::of_cost(&[], &[]), None);
    }

    /// With equal denominators the jackknife of a mean is that mean's own interval.
    #[test]
    fn the_interval_of_small_differences_is_students() {
        let values = [
            100.0, 100.2, 99.8, 100.1, 99.9, 100.0, 100.2, 99.8, 100.1, 99.9,
        ];
        let relative = ratio(&values).relative().unwrap();
        // Standard deviation 0.149 %, over √10 0.0471 %, times t(9) = 2.262: 0.107 %.
        assert!(relative.value.abs() < 1e-12);
        assert!((relative.high - 0.001_066).abs() < 2e-6, "{relative:?}");
        assert!((relative.low + 0.001_066).abs() < 2e-6, "{relative:?}");
    }

    #[test]
    fn a_rare_cost_widens_the_side_of_more() {
        let mut values = [100.0; 10];
        values[4] = 200.0;
        let one = ratio(&values);
        assert!((one.log - 1.1f64.ln()).abs() < 1e-12);
        let shown = one.shown.unwrap();
        assert!(
            shown.high - one.log > 1.2 * (one.log - shown.low),
            "{one:?}"
        );
        // Exchanging the sides mirrors it.
        let total = |value: f64| Total::of_cost(&[value], &[1000.0]);
        let (case, base) = (values.map(total), [total(100.0); 10]);
        let back = TotalRatio::from_epochs(&base, &case).unwrap();
        assert!((back.log + one.log).abs() < 1e-12);
        assert!((back.shown.unwrap().low + shown.high).abs() < 1e-9);
    }

    #[test]
    fn what_is_missing() {
        let total = |value: f64| Total::of_cost(&[value], &[1000.0]);
        assert_eq!(TotalRatio::from_epochs(&[], &[]), None);
        assert_eq!(TotalRatio::from_epochs(&[None], &[total(1.0)]), None);
        assert_eq!(
            TotalRatio::from_epochs(&[total(1.0)], &[total(0.0)]),
            None,
            "nothing spent"
        );
        let few = TotalRatio::from_epochs(&[total(2.0); 4], &[total(1.0); 4]).unwrap();
        assert_eq!((few.shown, few.deciding), (None, None));
        let gap = [total(2.0), None, total(2.0)];
        assert_eq!(
            TotalRatio::from_epochs(&gap, &[total(1.0); 3])
                .unwrap()
                .epochs,
            2
        );
    }

    #[test]
    fn same_and_within_hold_of_the_total_too() {
        let typical: Vec<f64> = (0..10).map(|i| 100.0 + 0.1 * f64::from(i % 3)).collect();
        let judged = judge(&[Differences::pair(&typical, &[100.0; 10])], &policy(0.05))[0];
        assert!(matches!(judged.verdict, Verdict::Same { .. }));
        assert_eq!(judged.budget, Some(Budget::Within));

        let alike = ratio(&typical);
        assert!(!alike.is_apart(&judged));
        assert_eq!(
            hold_against_totals(judged, Some(&alike), &policy(0.05), false),
            judged
        );
        assert_eq!(
            hold_against_totals(judged, None, &policy(0.05), false),
            judged
        );

        // Two epochs of ten cost twice as much: open, not apart.
        let mut rare = typical.clone();
        (rare[2], rare[7]) = (200.0, 200.0);
        let open = ratio(&rare);
        let held = hold_against_totals(judged, Some(&open), &policy(0.05), false);
        assert!(!open.is_apart(&judged));
        assert_eq!(held.verdict, Verdict::Unresolved { detectable: None });
        assert_eq!(held.budget, Some(Budget::CantTell));

        // Each costs about half more in all: known, and over.
        let dear: Vec<f64> = typical.iter().map(|one| one * 1.5).collect();
        let known = ratio(&dear);
        let held = hold_against_totals(judged, Some(&known), &policy(0.05), false);
        assert!(known.is_apart(&judged));
        assert_eq!(held.verdict, Verdict::Unresolved { detectable: None });
        assert_eq!(held.budget, Some(Budget::Over));
    }

    #[test]
    fn more_is_not_said_where_the_total_is_less() {
        let more: Vec<f64> = (0..12).map(|i| 110.0 + 0.1 * f64::from(i % 3)).collect();
        let judged = judge(&[Differences::pair(&more, &[100.0; 12])], &policy(0.05))[0];
        assert_eq!(judged.verdict, Verdict::Slower);
        let less: Vec<f64> = more.iter().map(|one| one * 0.5).collect();
        let held =
            |total: &[f64]| hold_against_totals(judged, Some(&ratio(total)), &policy(0.05), false);
        assert_eq!(held(&more), judged);
        assert_eq!(
            held(&less).verdict,
            Verdict::Unresolved { detectable: None }
        );
    }
}
