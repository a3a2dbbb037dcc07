//! The verdicts on a run's comparisons, of all its quantities as one family.

use bpfcost_stats::{
    Differences, Policy, Quantity, Sample, TotalRatio, hodges_lehmann, judge_quantities,
    power::epochs_to_resolve,
    verdict::{Budget as StatsBudget, Comparison as Judged, Verdict as StatsVerdict},
};

use crate::{BudgetVerdict, ComparisonRecord, VerdictRecord, totals};
use bpfcost_measure::Measurements;
use bpfcost_model::Pair;

impl From<StatsVerdict> for VerdictRecord {
    fn from(verdict: StatsVerdict) -> Self {
        match verdict {
            StatsVerdict::Slower => VerdictRecord::Slower,
            StatsVerdict::Faster => VerdictRecord::Faster,
            StatsVerdict::Same { .. } => VerdictRecord::Same,
            StatsVerdict::Unresolved { .. } => VerdictRecord::Unresolved,
        }
    }
}

impl From<StatsBudget> for BudgetVerdict {
    fn from(budget: StatsBudget) -> Self {
        match budget {
            StatsBudget::Within => BudgetVerdict::Within,
            StatsBudget::Over => BudgetVerdict::Over,
            StatsBudget::CantTell => BudgetVerdict::CantTell,
        }
    }
}

/// The mean time of a whole epoch; `None` before there is one.
pub(super) fn mean_epoch_s(measured: &Measurements) -> Option<f64> {
    // An epoch that was killed has no time.
    let whole: Vec<f64> = measured
        .epoch_s
        .iter()
        .copied()
        .filter(|seconds| *seconds > 0.0)
        .collect();
    Some(Sample::new(&whole)?.mean())
}

/// A pair that is compared.
pub(super) struct Candidate<'a> {
    pub(super) pair: &'a Pair,
    /// The ratio of its totals, where there is one.
    pub(super) total: Option<TotalRatio>,
    /// True if their undisturbed costs are compared.
    pub(super) undisturbed: bool,
}

/// Judges all quantities of a run as one family. `epoch_s` is what an epoch takes.
pub(super) fn judge_run(
    pairs: &[Vec<Candidate<'_>>],
    quantities: &[Quantity],
    epoch_s: Option<f64>,
) -> Vec<Vec<ComparisonRecord>> {
    let family = quantities.iter().map(|one| one.comparisons.len()).sum();
    let judged = judge_quantities(quantities);
    let of = |((judged, pairs), quantity): ((Vec<Judged>, &Vec<Candidate<'_>>), &Quantity)| {
        let policy = &quantity.policy;
        let found = judged.iter().zip(pairs).zip(&quantity.comparisons);
        let records = found.filter_map(|((judged, candidate), found)| {
            let time_s = |epochs: Option<usize>| Some(epochs? as f64 * epoch_s?);
            let resolve_s =
                |effect: f64| time_s(epochs_to_resolve(&found.log_ratio, effect, family));
            let typical = comparison(judged, candidate, found, policy, resolve_s)?;
            let Some(ratio) = &candidate.total else {
                return Some(typical);
            };
            let total_s = |distance: f64| time_s(ratio.epochs_to_resolve(distance, family));
            Some(totals::with_totals(typical, judged, ratio, policy, total_s))
        });
        records.collect()
    };
    judged
        .into_iter()
        .zip(pairs)
        .zip(quantities)
        .map(of)
        .collect()
}

fn comparison(
    judged: &Judged,
    candidate: &Candidate<'_>,
    differences: &Differences,
    policy: &Policy,
    resolve_s: impl Fn(f64) -> Option<f64>,
) -> Option<ComparisonRecord> {
    let (verdict, pair) = (VerdictRecord::from(judged.verdict), candidate.pair);
    let relative = hodges_lehmann(&differences.log_ratio)?;
    let open = judged.budget == Some(StatsBudget::CantTell);
    let from_budget = policy
        .budget
        .filter(|_| open)
        .map(|budget| (budget.ln_1p() - relative).abs());
    Some(ComparisonRecord {
        case: pair.case.clone(),
        baseline: pair.baseline.clone(),
        about: pair.about.clone(),
        undisturbed: candidate.undisturbed,
        difference: hodges_lehmann(&differences.absolute)?,
        ci95: judged.difference.map(|e| [e.low, e.high]),
        relative: relative.exp_m1(),
        relative_ci95: judged.relative.map(|e| [e.low, e.high]),
        relative_ci90: judged
            .relative90
            .filter(|_| policy.budget.is_some())
            .map(|i| [i.low, i.high]),
        totals: None,
        p: judged.p,
        verdict,
        detectable: judged
            .detectable
            .map(|share| share * 100.0)
            .filter(|percent| percent.is_finite()),
        resolve_s: (verdict == VerdictRecord::Unresolved)
            .then(|| resolve_s(policy.margin.ln_1p()))
            .flatten(),
        budget_s: from_budget.and_then(resolve_s),
        budget: judged.budget.map(BudgetVerdict::from),
    })
}
