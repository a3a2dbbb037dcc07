//! Totals of a workload: all that was spent by all that was done, beside the typical window.

use crate::{
    BudgetAnswer, BudgetVerdict, Record, Status, VerdictRecord,
    samples::{rare, windows},
};

/// Σ ns / Σ ops of a case, from the record's own windows.
fn summed(record: &Record, case: &str, value: impl Fn(usize, usize) -> f64) -> f64 {
    let result = record.case(case).expect("the case");
    let ops = result.secondary["ops"].iter().enumerate();
    let windows = ops.flat_map(|(epoch, ops)| {
        let ops = ops.iter().enumerate();
        ops.map(|(place, ops)| (value(epoch, place) * ops, *ops))
            .collect::<Vec<_>>()
    });
    let (spent, done) = windows.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
    spent / done
}

#[test]
fn a_total_is_all_ns_by_all_operations() {
    // Operations differ from window to window, so that a mean of windows would be another.
    let record = windows(
        None,
        |window, on| {
            if on {
                120.0 + (window % 3) as f64
            } else {
                100.0
            }
        },
        |window| 100.0 * (1 + window % 4) as f64,
    );
    let total = |name: &str| {
        let case = record.case(name).expect("the case");
        let total = summed(&record, name, |epoch, place| case.samples[epoch][place]);
        assert!((case.total().expect("a total") / total - 1.0).abs() < 1e-12);
        total
    };
    let ratio = total("probe") / total("off") - 1.0;
    let result = record.comparisons[0].totals.expect("totals");
    assert!(
        (result.relative - ratio).abs() < 1e-12,
        "{result:?} {ratio}"
    );
    assert!(result.ci95[0] < ratio && ratio < result.ci95[1]);
    assert!(result.ci95[0] < result.ci90[0] && result.ci90[1] < result.ci95[1]);
    assert!(!result.apart);

    // So are those of what else adds up. Twice the time of the server is the machine's.
    let metric = |name: &str| {
        let metric = record.metrics.iter().find(|one| one.metric.name == name);
        metric.expect("the metric").comparisons[0]
            .totals
            .expect("totals")
    };
    assert!((metric("machine_ns").relative - ratio).abs() < 1e-12);
    assert!((metric("ops_per_s").relative - (1.0 / (1.0 + ratio) - 1.0)).abs() < 1e-12);
    let latencies = record.metrics.iter().filter(|one| one.metric.unit == "us");
    assert!(
        latencies
            .flat_map(|one| &one.comparisons)
            .all(|one| one.totals.is_none())
    );
}

#[test]
fn what_comes_seldom_is_in_the_total_alone() {
    let record = rare(Some(0.05));
    let one = &record.comparisons[0];
    assert!(
        one.relative.abs() < 0.01,
        "typical windows cost nothing: {one:?}"
    );
    let totals = one.totals.expect("totals");
    assert!((totals.relative - 0.3).abs() < 0.01, "{totals:?}");
    assert_eq!(one.verdict, VerdictRecord::Unresolved);
    assert_eq!(one.budget, Some(BudgetVerdict::Over));
    assert_eq!(record.budget_answer(), Some(BudgetAnswer::Over));
    assert!(totals.apart && totals.withheld);
    assert_eq!(
        (one.detectable, one.resolve_s, one.budget_s),
        (None, None, None)
    );
    assert!(one.relative_ci90.expect("it has a budget")[1] < 0.05);
}

#[test]
fn what_costs_nothing_is_still_the_same() {
    let record = windows(Some(0.05), |_, _| 100.0, |_| 1000.0);
    let one = &record.comparisons[0];
    assert_eq!(one.verdict, VerdictRecord::Same);
    assert_eq!(one.budget, Some(BudgetVerdict::Within));
    let totals = one.totals.expect("totals");
    assert!(!totals.apart && !totals.withheld);
}

/// A cost of which one window of fifty tells, of seven percent in all: open, and a time would settle the budget.
#[test]
fn what_is_open_says_how_long_it_takes() {
    let ns = |window: usize, on: bool| if on && window == 23 { 200.0 } else { 100.0 };
    let record = windows(Some(0.05), ns, |_| 1000.0);
    let one = &record.comparisons[0];
    let totals = one.totals.expect("totals");
    assert!(
        (totals.relative - 0.02).abs() < 0.001 && !totals.apart && totals.withheld,
        "{totals:?}"
    );
    assert_eq!(one.verdict, VerdictRecord::Unresolved);
    assert_eq!(one.budget, Some(BudgetVerdict::CantTell));
    let (resolve_s, budget_s) = (
        one.resolve_s.expect("a time"),
        one.budget_s.expect("a time"),
    );
    assert!(budget_s > 20.0, "longer than the run: {budget_s}");
    assert!(resolve_s > budget_s, "the margin is nearer: {resolve_s}");
}

#[test]
fn without_operations_there_is_no_total() {
    let mut record = rare(None);
    assert_eq!(
        record.case("probe").map(|case| case.status),
        Some(Status::Ok)
    );
    for case in &mut record.cases {
        case.secondary.remove("ops");
        assert_eq!(case.total(), None);
    }
    // An older record has no key for it, and reads as one without.
    let mut value = serde_json::to_value(&record).expect("JSON");
    let comparisons = value["comparisons"].as_array_mut().expect("comparisons");
    for one in comparisons {
        let one = one.as_object_mut().expect("an object");
        assert!(one.remove("totals").is_some());
    }
    let read: Record = serde_json::from_value(value).expect("a record");
    assert_eq!(read.comparisons[0].totals, None);
    assert_eq!(read.comparisons[0].relative_ci90, None);
}
