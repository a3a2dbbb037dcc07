//! Verdicts from paired epochs.
//!
//! A comparison pairs case and baseline within each epoch: d = case − baseline, and relative
//! log case − log baseline. Estimate and 95 % interval are Hodges–Lehmann and exact signed-rank, for
//! each comparison on its own. The verdict falls in this order:
//!
//! 1. `Same`, where the 90 % interval lies inside ±margin. That is two one-sided tests at 5 % each
//!    (TOST; Schuirmann 1987), by [`interval_without_symmetry`]: an effect may strike the case in some epochs only. It is
//!    not adjusted for the number of comparisons: to be wrong, the effect must be as large as the margin, and then each
//!    comparison errs in 5 % of runs, at most 5.5 % in simulations, which is what is claimed of it alone. Taking
//!    precedence, it can only lower the false-alarm rate of the next step.
//! 2. `Slower` or `Faster`, where Holm over *all* comparisons of the run, of all its quantities, rejects at
//!    [`FALSE_ALARM_LEVEL`]. At a single look, exchangeable epochs in which nothing differs raise even one alarm in at
//!    most 4 % of runs; what looks add is simulated (docs/evidence/comparisons.md).
//! 3. else `Unresolved`, with what would have been seen.
//!
//! The margin ±m is taken on the log scale as ±ln(1 + m), so that exchanging case and baseline exchanges
//! `Slower` and `Faster` and keeps `Same`.
//!
//! Schuirmann, D. J. (1987), "A comparison of the two one-sided tests procedure and the power approach
//! for assessing the equivalence of average bioavailability", J. Pharmacokin. Biopharm. 15(6).

use crate::asymmetric::interval_without_symmetry;
use crate::differences::Differences;
use crate::estimate::{Estimate, Interval, signed_rank_p};
use crate::holm::holm;
use crate::power::{FALSE_ALARM_LEVEL, detectable, epochs_to_resolve};

/// Confidence of the interval that decides `Same` and budgets: 5 % on either side.
pub const EQUIVALENCE_CONFIDENCE: f64 = 0.90;

/// The relative effect that a run is asked to resolve.
pub const TARGET_EFFECT: f64 = 0.01;

/// The verdict of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// The case costs more (or, of a rate, yields less) than the baseline.
    Slower,
    /// The case costs less (or, of a rate, yields more) than the baseline.
    Faster,
    /// The difference is below what matters.
    Same {
        /// The relative difference that would matter; 0.01 is 1 %.
        margin: f64,
    },
    /// The run does not resolve it.
    Unresolved {
        /// The relative effect that would have been found in about three runs of four; `None` where
        /// no effect of any size could have been found.
        detectable: Option<f64>,
    },
}

/// The answer to whether a relative cost stays within a budget, at 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// The cost is within the budget.
    Within,
    /// The cost exceeds the budget, and there is a difference at all, by Holm over the comparisons of the run: what is
    /// over fails a gate.
    Over,
    /// The interval holds the budget.
    CantTell,
}

/// The direction in which a value is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sense {
    /// The value is a cost (ns per operation): more is slower.
    #[default]
    Cost,
    /// The value is a rate (operations per second): more is faster.
    Rate,
}

/// The rules by which comparisons are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// The relative difference below which two cases are the same: 0.01 for kernel costs, 0.03 for CPU
    /// per operation, 0.05 for throughput, 0 on exact targets. Negative or NaN reads as 0.
    pub margin: f64,
    /// The relative cost (or loss of rate) that is allowed, if any; 0.05 is 5 %.
    pub budget: Option<f64>,
    /// The direction in which a value is better.
    pub sense: Sense,
}

/// The result of one comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Epochs in which both sides have a value.
    pub epochs: usize,
    /// Epochs left out because a side had none.
    pub missing: usize,
    /// case − baseline, with the 95 % interval, in the unit of the values; `None` below 6 epochs.
    pub difference: Option<Estimate>,
    /// case / baseline − 1, with the 95 % interval; 0.01 is 1 % more. `None` below 6 epochs.
    pub relative: Option<Estimate>,
    /// The 90 % interval of `relative`, which decides `Same` and the budget.
    pub relative90: Option<Interval>,
    /// The exact two-sided p-value of the relative difference, before Holm.
    pub p: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// The relative effect that would have been found in about three runs of four, whatever the verdict.
    pub detectable: Option<f64>,
    /// Epochs in all that would resolve [`TARGET_EFFECT`].
    pub epochs_to_resolve: Option<usize>,
    /// The budget's answer, where the policy has one.
    pub budget: Option<Budget>,
}

/// The comparisons of one quantity of a run, and the rules by which they are judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    /// The comparisons.
    pub comparisons: Vec<Differences>,
    /// The rules by which they are judged.
    pub policy: Policy,
}

/// Judges all comparisons of a run that has one quantity; see [`judge_quantities`].
#[must_use]
pub fn judge(comparisons: &[Differences], policy: &Policy) -> Vec<Comparison> {
    let quantity = Quantity {
        comparisons: comparisons.to_vec(),
        policy: *policy,
    };
    judge_quantities(&[quantity]).concat()
}

/// Judges all comparisons of all quantities of a run together, once, at its end: they are one family. The
/// result keeps their order.
#[must_use]
pub fn judge_quantities(quantities: &[Quantity]) -> Vec<Vec<Comparison>> {
    let family: usize = quantities.iter().map(|one| one.comparisons.len()).sum();
    let evidence: Vec<(Evidence, &Policy)> = quantities
        .iter()
        .flat_map(|one| one.comparisons.iter().map(|pair| (pair, &one.policy)))
        .map(|(pair, policy)| (Evidence::of_epochs(pair, family), policy))
        .collect();
    let mut judged = decide_each(&evidence).into_iter().zip(&evidence);
    quantities
        .iter()
        .map(|one| {
            let pairs = one.comparisons.iter().zip(judged.by_ref());
            pairs
                .map(|(pair, (decision, (evidence, _)))| {
                    comparison(pair, evidence, decision, family)
                })
                .collect()
        })
        .collect()
}

fn comparison(
    differences: &Differences,
    evidence: &Evidence,
    decision: Decision,
    family: usize,
) -> Comparison {
    let to_resolve = TARGET_EFFECT.ln_1p();
    Comparison {
        epochs: differences.absolute.len(),
        missing: differences.missing,
        difference: Estimate::for_difference(&differences.absolute),
        relative: evidence.shown.map(|e| e.map(f64::exp_m1)),
        relative90: evidence.deciding.map(|i| i.map(f64::exp_m1)),
        p: evidence.p,
        verdict: decision.verdict,
        detectable: evidence.detectable.map(f64::exp_m1),
        epochs_to_resolve: epochs_to_resolve(&differences.log_ratio, to_resolve, family),
        budget: decision.budget,
    }
}

/// The evidence for a verdict, as log ratios: from the epochs of a run, or from sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Evidence {
    /// Estimate with the 95 % interval.
    pub(crate) shown: Option<Estimate>,
    /// The 90 % interval.
    pub(crate) deciding: Option<Interval>,
    /// The two-sided p-value, before Holm.
    pub(crate) p: f64,
    /// The log ratio that would have been found in about three runs of four.
    pub(crate) detectable: Option<f64>,
}

impl Evidence {
    /// No evidence at all.
    pub(crate) const NONE: Self = Self {
        shown: None,
        deciding: None,
        p: 1.0,
        detectable: None,
    };

    fn of_epochs(pair: &Differences, family: usize) -> Self {
        let Differences {
            log_ratio,
            unnoticed,
            ..
        } = pair;
        let shown = Estimate::for_difference(log_ratio).map(|shown| Estimate {
            low: shown.low + unnoticed.low,
            high: shown.high + unnoticed.high,
            ..shown
        });
        let deciding = interval_without_symmetry(log_ratio).map(|deciding| Interval {
            low: deciding.low + unnoticed.low,
            high: deciding.high + unnoticed.high,
        });
        Self {
            shown,
            deciding,
            p: signed_rank_p(log_ratio),
            detectable: detectable(log_ratio, family),
        }
    }
}

/// The decision on a comparison as a member of its family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Decision {
    pub(crate) verdict: Verdict,
    /// The budget's answer, where the policy has one.
    pub(crate) budget: Option<Budget>,
}

/// The decisions on one family of comparisons of one quantity, in their order.
pub(crate) fn decide(family: &[Evidence], policy: &Policy) -> Vec<Decision> {
    let family: Vec<(Evidence, &Policy)> = family.iter().map(|one| (*one, policy)).collect();
    decide_each(&family)
}

/// The decisions on one family of comparisons, each by its own policy, in their order.
fn decide_each(family: &[(Evidence, &Policy)]) -> Vec<Decision> {
    let p_values: Vec<f64> = family.iter().map(|(evidence, _)| evidence.p).collect();
    family
        .iter()
        .zip(holm(&p_values, FALSE_ALARM_LEVEL))
        .map(|((evidence, policy), rejected)| {
            let margin = policy.margin.max(0.0); // NaN too
            let reach = margin.ln_1p();
            let verdict = match (evidence.deciding, evidence.shown) {
                (Some(i), _) if -reach <= i.low && i.high <= reach => Verdict::Same { margin },
                (_, Some(shown)) if rejected && !shown.interval().contains(0.0) => {
                    if (shown.value > 0.0) == (policy.sense == Sense::Cost) {
                        Verdict::Slower
                    } else {
                        Verdict::Faster
                    }
                }
                _ => Verdict::Unresolved {
                    detectable: evidence.detectable.map(f64::exp_m1),
                },
            };
            let beyond_noise = |answer| match answer {
                Budget::Over if !rejected => Budget::CantTell,
                answer => answer,
            };
            let asked = policy.budget;
            let budget = asked.map(|b| beyond_noise(budget(evidence.deciding, b, policy.sense)));
            Decision { verdict, budget }
        })
        .collect()
}

/// Places the 90 % interval of a log ratio against a budget.
pub(crate) fn budget(log_ratio: Option<Interval>, budget: f64, sense: Sense) -> Budget {
    let Some(relative) = log_ratio.map(|i| i.map(f64::exp_m1)) else {
        return Budget::CantTell;
    };
    let (least, most) = match sense {
        Sense::Cost => (relative.low, relative.high),
        Sense::Rate => (-relative.high, -relative.low),
    };
    if most <= budget {
        Budget::Within
    } else if least > budget {
        Budget::Over
    } else {
        Budget::CantTell
    }
}

/// Judges two cases on an exact target, where a cost repeats and there is no interval: from all loads'
/// values of either side. `Same` when every value equals every other; `Slower` or `Faster` when the
/// ranges of the two sides do not meet; else unresolved by the spread over loads, relative to the
/// baseline. A side without a finite value is unresolved. Values that differ by no more than `rounding`,
/// what the clock may have rounded, are equal.
#[must_use]
pub fn judge_exact(case: &[f64], baseline: &[f64], rounding: f64, sense: Sense) -> Verdict {
    let range = |values: &[f64]| {
        let finite = crate::pairwise::sorted(values);
        Some(Interval {
            low: *finite.first()?,
            high: *finite.last()?,
        })
    };
    let (Some(case), Some(baseline)) = (range(case), range(baseline)) else {
        return Verdict::Unresolved { detectable: None };
    };
    let more = case.low > baseline.high + rounding;
    let less = case.high < baseline.low - rounding;
    if more || less {
        return if more == (sense == Sense::Cost) {
            Verdict::Slower
        } else {
            Verdict::Faster
        };
    }
    if case.high.max(baseline.high) - case.low.min(baseline.low) <= rounding {
        return Verdict::Same { margin: 0.0 };
    }
    let spread = (case.high - case.low).max(baseline.high - baseline.low) / baseline.low.abs();
    Verdict::Unresolved {
        detectable: spread.is_finite().then_some(spread),
    }
}
