//! Totals beside typical windows: all that the windows of a workload's case took, by all operations that they did.
//! Medians drop what comes seldom; totals have it.

use bpfcost_stats::{Budget, Comparison as Judged, Policy, Total, TotalRatio, hold_against_totals};

use crate::{BudgetVerdict, CaseRecord, ComparisonRecord, TotalsRecord, VerdictRecord};
use bpfcost_measure::{OPS, Summed};
use bpfcost_model::Metric;

/// The function that adds up windows of a metric; `None` for those that don't add up, such as latencies.
pub(super) fn total_function(metric: &Metric) -> Option<Summed> {
    match metric.unit.as_str() {
        "ns/op" => Some(Total::of_cost),
        "op/s" => Some(Total::of_rate),
        _ => None,
    }
}

/// A comparison of typical windows or batches, as far as the totals bear it out. `total_s` returns the seconds of
/// measuring after which the total would be distinguished from a log ratio at that distance.
pub(super) fn with_totals(
    typical: ComparisonRecord,
    judged: &Judged,
    ratio: &TotalRatio,
    policy: &Policy,
    total_s: impl Fn(f64) -> Option<f64>,
) -> ComparisonRecord {
    let both = hold_against_totals(*judged, Some(ratio), policy, typical.undisturbed);
    let verdict = VerdictRecord::from(both.verdict);
    let withheld = verdict != typical.verdict;
    // More of the same would settle it only where the total lies within the margin too.
    let to_same = policy.margin.ln_1p() - ratio.log.abs();
    let total_resolve_s = || (to_same > 0.0).then(|| total_s(to_same)).flatten();
    let open = both.budget == Some(Budget::CantTell);
    let beyond = |budget: f64| ratio.deciding.is_some_and(|one| one.high > budget.ln_1p());
    let total_budget_s = policy
        .budget
        .filter(|budget| open && beyond(*budget))
        .and_then(|budget| total_s((budget.ln_1p() - ratio.log).abs()));
    ComparisonRecord {
        verdict,
        detectable: typical.detectable.filter(|_| both.detectable.is_some()),
        resolve_s: if withheld {
            total_resolve_s()
        } else {
            typical.resolve_s
        },
        budget: both.budget.map(BudgetVerdict::from),
        budget_s: [typical.budget_s, total_budget_s]
            .into_iter()
            .flatten()
            .filter(|_| open)
            .reduce(f64::max),
        totals: totals_record(ratio, judged, withheld),
        ..typical
    }
}

/// The record of the totals; `None` without an interval.
fn totals_record(ratio: &TotalRatio, typical: &Judged, withheld: bool) -> Option<TotalsRecord> {
    let relative = ratio.relative()?;
    let deciding = ratio.deciding?.map(f64::exp_m1);
    Some(TotalsRecord {
        relative: relative.value,
        ci95: [relative.low, relative.high],
        ci90: [deciding.low, deciding.high],
        apart: ratio.is_apart(typical),
        withheld,
    })
}

impl CaseRecord {
    /// All CPU time of its windows by all their operations; `None` where operations are not counted.
    pub fn total(&self) -> Option<f64> {
        let ops = self.secondary.get(OPS)?;
        let epochs = self.samples.iter().zip(ops);
        let totals = epochs.filter_map(|(values, ops)| Total::of_cost(values, ops));
        let (sum, per) = totals.fold((0.0, 0.0), |all, one| (all.0 + one.sum, all.1 + one.per));
        Some(sum / per).filter(|total| total.is_finite())
    }
}
