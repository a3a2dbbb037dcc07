//! Values of a record whose instructions are counted: numbers that repeat, instead of intervals.
//!
//! Counts add up, as times do not: what a case costs less its floor is a number, and no bracket. A
//! verdict needs no test, for there is no noise: two counts differ where the ranges that they take over
//! loads do not meet. A case whose count repeats nowhere has the range of all its trials, for few loads may lie
//! apart by chance.

use bpfcost_stats::{Count, Sample, Sense, count, judge_exact, verdict::Verdict as StatsVerdict};

use crate::{
    BudgetVerdict, ChangeOutcome, ComparisonRecord, Cost, Net, Raw, VerdictRecord, raw,
    recorded_count::{ops, rounding},
};
use bpfcost_measure::{CaseData, Centre};
use bpfcost_model::Pair;

/// A case's count over all its loads. Where no trial repeats another, loads may still: each of them lives
/// through the same states.
fn whole(data: &CaseData) -> Option<Count> {
    let trials = count(&data.samples.concat(), ops(data.calibration))?;
    if trials.repeats > 0 {
        return Some(trials);
    }
    let mut loads = load_counts(data);
    loads.retain(|count| count.is_finite());
    loads.sort_unstable_by(f64::total_cmp);
    Some(Count {
        // The lower of two in the middle: a count that was seen, not one between.
        value: *loads.get(loads.len().checked_sub(1)? / 2)?,
        repeats: 0,
    })
}

/// The count of each load; NaN where a load has no trial.
pub(super) fn load_counts(data: &CaseData) -> Vec<f64> {
    let of_load = |samples: &Vec<f64>| {
        count(samples, ops(data.calibration)).map_or(f64::NAN, |count| count.value)
    };
    data.samples.iter().map(of_load).collect()
}

/// A case's count and the description of its trials; `None` without trials.
pub(super) fn raw(data: &CaseData, load_counts: &[f64]) -> Option<Raw> {
    let count = whole(data)?;
    let loads = Sample::new(load_counts)?;
    Some(Raw {
        value: count.value,
        ci95: None,
        loads: Some([loads.min(), loads.max()]),
        repeats: Some(count.repeats),
        // What is far from the rest met another state of the same tables: no accident.
        outliers: 0,
        modes: Vec::new(),
        ..raw::raw(&data.samples, load_counts, None, Centre::Typical)?
    })
}

/// The net cost of a case: its count minus that of its floor.
pub(super) fn net(case: &CaseData, floor: &CaseData) -> Option<Net> {
    let left = whole(case)?.value - whole(floor)?.value;
    Some(Net {
        bracket: [left, left],
        value: Some(left),
        ci95: None,
        distinguishable: left > rounding(case.calibration).max(rounding(floor.calibration)),
    })
}

/// A case against its baseline.
pub(super) fn comparison(
    pair: &Pair,
    case: &Cost,
    baseline: &Cost,
    budget: Option<f64>,
) -> Option<ComparisonRecord> {
    let relative = case.value / baseline.value - 1.0;
    let (range, base) = (case.ends?, baseline.ends?);
    if !relative.is_finite() {
        return None;
    }
    let rounding = case.rounding.max(baseline.rounding);
    let judged = judge_exact(&range, &base, rounding, Sense::Cost);
    let differs = matches!(judged, StatsVerdict::Slower | StatsVerdict::Faster);
    let detectable = match judged {
        StatsVerdict::Unresolved { detectable } => detectable,
        _ => None,
    };
    Some(ComparisonRecord {
        case: pair.case.clone(),
        baseline: pair.baseline.clone(),
        about: pair.about.clone(),
        undisturbed: false,
        difference: case.value - baseline.value,
        ci95: None,
        relative,
        relative_ci95: None,
        relative_ci90: None,
        totals: None,
        // Nothing is left to chance, so that chance explains either nothing or everything.
        p: if differs { 0.0 } else { 1.0 },
        verdict: VerdictRecord::from(judged),
        detectable: detectable.map(|share| share * 100.0),
        resolve_s: None,
        budget_s: None,
        // Whether even the most expensive load is within it, or even the cheapest over. What the clock rounds is no cost.
        budget: budget.map(|budget| {
            if range[1] - rounding <= (1.0 + budget) * base[0] {
                BudgetVerdict::Within
            } else if range[0] - rounding > (1.0 + budget) * base[1] {
                BudgetVerdict::Over
            } else {
                BudgetVerdict::CantTell
            }
        }),
    })
}

/// The change of a case between two sides, by the ranges that its count takes over the loads of each (over all trials,
/// where neither trials nor loads repeat).
pub(super) fn change(old: &[Cost], new: &[Cost], threshold: f64) -> (ChangeOutcome, Option<f64>) {
    let costs = || old.iter().chain(new);
    let rounding = costs().map(|cost| cost.rounding).fold(0.0, f64::max);
    let value = |side: &[Cost]| {
        let values: Vec<f64> = side.iter().map(|cost| cost.value).collect();
        Some(Sample::new(&values)?.median())
    };
    let relative = value(new)
        .zip(value(old))
        .map(|(new, old)| new / old - 1.0)
        .filter(|relative| relative.is_finite());
    let (Some(old), Some(new)) = (range(old), range(new)) else {
        return (ChangeOutcome::Unresolved, relative);
    };
    let (least, most) = (new[0] / old[1] - 1.0, new[1] / old[0] - 1.0);
    // What the clock rounds is no change.
    let threshold = threshold + rounding / old[0].abs();
    let outcome = if least >= -threshold && most <= threshold {
        ChangeOutcome::Same
    } else if least > threshold {
        ChangeOutcome::Regressed
    } else if most < -threshold {
        ChangeOutcome::Improved
    } else {
        ChangeOutcome::Unresolved
    };
    (outcome, relative)
}

/// The range that the counts of a side take over loads.
pub(super) fn range(side: &[Cost]) -> Option<[f64; 2]> {
    let ranges = || side.iter().filter_map(|cost| cost.ends);
    let low = ranges().map(|range| range[0]).reduce(f64::min)?;
    Some([low, ranges().map(|range| range[1]).reduce(f64::max)?])
}

/// The widest range over loads that a count of these takes, as a share of it; 0 where every load gives one number.
pub(super) fn widest(costs: &[Cost]) -> f64 {
    let widths = costs.iter().filter_map(|cost| {
        let [low, high] = cost.range()?;
        Some((high - low) / cost.value)
    });
    widths.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded_count::{rare_work, recorded_range};
    use bpfcost_measure::Calibration;
    use bpfcost_model::Batch;

    fn case(samples: &[&[f64]]) -> CaseData {
        CaseData {
            samples: samples.iter().map(|load| load.to_vec()).collect(),
            calibration: Some(Calibration {
                batch: Batch(512),
                ns_per_op: 900.0,
                ratio: None,
                attempts: 0,
                traced: false,
            }),
            ..CaseData::default()
        }
    }

    fn pair() -> Pair {
        Pair {
            case: "a".into(),
            baseline: "b".into(),
            about: String::new(),
        }
    }

    #[test]
    fn a_count_repeats_over_loads() {
        let data = case(&[
            &[888.002, 888.0, 893.3],
            &[888.0, 888.0, 888.0],
            &[891.0; 3],
        ]);
        let raw = raw(&data, &load_counts(&data)).unwrap();
        assert_eq!((raw.value, raw.repeats), (888.0, Some(5)));
        // In the first load two samples agree, and two are too few: the median stands for it.
        assert_eq!(raw.loads, Some([888.0, 891.0]));
        assert_eq!((raw.epochs, raw.trials, raw.ci95), (3, 9, None));
        assert_eq!(super::raw(&case(&[]), &[]), None);
    }

    #[test]
    fn net_is_a_number() {
        let net = net(&case(&[&[888.0; 4]]), &case(&[&[103.0; 4]])).unwrap();
        assert_eq!((net.bracket, net.value), ([785.0; 2], Some(785.0)));
        assert!(net.distinguishable);
        let nothing = super::net(&case(&[&[103.0; 4]]), &case(&[&[103.0; 4]])).unwrap();
        assert!(!nothing.distinguishable);
    }

    #[test]
    fn verdicts_need_ranges_that_do_not_meet() {
        let cost = |range: [f64; 2]| Cost {
            value: range[0],
            ends: Some(range),
            rounding: 4.0 / 512.0,
            part: 1.0,
        };
        let verdict = |case: [f64; 2], baseline: [f64; 2]| {
            let record = comparison(&pair(), &cost(case), &cost(baseline), Some(0.05)).unwrap();
            (record.verdict, record.budget.unwrap(), record.p)
        };
        let within = BudgetVerdict::Within;
        assert_eq!(
            verdict([100.0; 2], [100.0; 2]),
            (VerdictRecord::Same, within, 1.0)
        );
        assert_eq!(
            verdict([101.0; 2], [100.0; 2]),
            (VerdictRecord::Slower, within, 0.0)
        );
        assert_eq!(verdict([100.0; 2], [101.0; 2]).0, VerdictRecord::Faster);
        assert_eq!(verdict([200.0; 2], [100.0; 2]).1, BudgetVerdict::Over);
        // One instruction more is over a budget of none, and what the clock rounds is not.
        let of_none = |case: f64| {
            let record = comparison(&pair(), &cost([case; 2]), &cost([100.0; 2]), Some(0.0));
            record.unwrap().budget
        };
        assert_eq!(of_none(101.0), Some(BudgetVerdict::Over));
        assert_eq!(of_none(100.005), Some(within));
        assert_eq!(
            verdict([95.0, 125.0], [100.0; 2]),
            (VerdictRecord::Unresolved, BudgetVerdict::CantTell, 1.0)
        );
    }

    /// A sweep in one batch of ten is no accident: the count is not called the same as that of a case without.
    #[test]
    fn work_now_and_then_is_no_accident() {
        let record = |rare: usize| {
            let load = |first: usize| {
                let sample = |index: usize| if first + index < rare { 140.0 } else { 100.0 };
                (0..10).map(sample).collect::<Vec<f64>>()
            };
            let data = case(&[&load(0), &load(10), &load(20)]);
            let counts = load_counts(&data);
            let mut record = crate::samples::record(3).cases.remove(0);
            record.raw = raw(&data, &counts);
            (record.samples, record.calibration) = (data.samples, data.calibration);
            record
        };
        assert_eq!(recorded_range(&record(0)), Some([100.0; 2]));
        assert_eq!(
            recorded_range(&record(1)),
            Some([100.0; 2]),
            "an interruption"
        );
        let rare = rare_work(&record(3)).unwrap();
        assert_eq!((rare.batches, rare.mean), ([3, 30], 104.0));
        assert_eq!(recorded_range(&record(3)), Some([100.0, 104.0]));
        let [swept, plain] = [3, 0].map(|rare| Cost::raw(&record(rare)).unwrap());
        let compared = comparison(&pair(), &swept, &plain, Some(0.02)).unwrap();
        assert_eq!(compared.verdict, VerdictRecord::Unresolved);
        assert_eq!(compared.budget, Some(BudgetVerdict::CantTell));
    }
}
