//! Building a record from made-up data whose answers are known.

use proptest::prelude::*;

use super::{super::*, built, case, events, finished, plan, record, trial, usual};
use bpfcost_measure::{Event, Plan, Stop, Warning};
use bpfcost_model::{Metric, Problem, Role};

fn build(events: &[Event]) -> Record {
    built(&plan(), events, Machine::default())
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-9 * expected.abs().max(1.0)
}

#[test]
fn a_value_and_its_interval() {
    // Medians 1 to 10: R's wilcox.test(1:10, conf.int = TRUE) gives 5.5 and 3 to 8.
    let mut plan = plan();
    plan.cases = vec![case("only", Role::Case, None)];
    let mut events = Vec::new();
    for epoch in 0..10 {
        events.push(Event::EpochStarted {
            epoch,
            load_s: 0.0,
            kernel_bytes: None,
        });
        for (round, offset) in [-0.5, 0.0, 100.0].into_iter().enumerate() {
            events.push(Event::Trial {
                epoch,
                round,
                case: 0,
                trial: trial(epoch as f64 + 1.0 + offset, None),
            });
        }
    }
    let record = built(&plan, &events, Machine::default());
    let raw = record.cases[0].raw.as_ref().unwrap();
    assert_eq!((raw.value, raw.ci95), (5.5, Some([3.0, 8.0])));
    assert_eq!((raw.epochs, raw.trials), (10, 30));
    assert_eq!((raw.min, raw.max), (0.5, 110.0));
    // 30 sorted trials: 0.5, 1, 1.5, … 9.5, 10, then 101 … 110; type 7.
    assert!(
        near(raw.p50, 7.75) && near(raw.p90, 107.1) && near(raw.p99, 109.71),
        "{raw:?}"
    );
    assert!(
        raw.cv > 1.0 && near(raw.stddev / raw.cv, 1160.0 / 30.0),
        "{raw:?}"
    );
    assert_eq!(
        (raw.outliers, raw.modes.len()),
        (0, 2 * usize::from(!raw.modes.is_empty()))
    );
    assert_eq!(record.cases[0].net, None);
    assert_eq!(record.stop, Stop::Interrupted);
}

#[test]
fn net_is_a_bracket_by_epoch() {
    let record = record(12);
    let hit = record.case("hit").unwrap();
    let (raw, net) = (hit.raw.as_ref().unwrap(), hit.net.as_ref().unwrap());
    // In context 2.5 + 0.5, alone 2.0.
    assert!(near(net.bracket[0], raw.value - 3.0), "{net:?}");
    assert!(near(net.bracket[1], raw.value - 2.0), "{net:?}");
    assert_eq!(net.value, None);
    assert!(net.distinguishable);
    // The floor's own net is what the reset costs alone.
    let floor = record.case("floor/reset").unwrap().net.clone().unwrap();
    assert!(near(floor.value.unwrap(), 1.5));
    assert_eq!(record.case("floor/none").unwrap().net, None);
}

#[test]
fn a_tenth_more_is_slower_and_over_budget() {
    let record = record(12);
    let [comparison] = record.comparisons.as_slice() else {
        panic!("{:?}", record.comparisons)
    };
    assert_eq!(comparison.verdict, VerdictRecord::Slower);
    assert_eq!(comparison.budget, Some(BudgetVerdict::Over));
    assert!(
        (comparison.relative - 0.1004).abs() < 0.0003,
        "{comparison:?}"
    );
    let [low, high] = comparison.relative_ci95.unwrap();
    assert!(0.1 <= low && low < comparison.relative && comparison.relative < high && high < 0.1009);
    assert!((comparison.difference - 4.0).abs() < 0.05);
    // All 12 epochs on one side: the smallest p there is.
    assert!(near(comparison.p, 2.0 / 4096.0));
    assert!(
        comparison.detectable.unwrap() < 0.2,
        "percent: {comparison:?}"
    );
    assert_eq!(comparison.resolve_s, None);
    assert!(record.case("hit").unwrap().baseline && !record.case("miss").unwrap().baseline);
}

#[test]
fn equal_cases_are_the_same_and_within_budget() {
    let equal = |epoch: usize, case: usize| {
        let sign = if epoch.is_multiple_of(2) { 1.0 } else { -1.0 };
        match case {
            0 => usual(epoch, 0),
            1 => (
                usual(epoch, 0).0 * (1.0 + sign * 0.0003 * epoch as f64),
                2.5,
            ),
            _ => usual(epoch, case),
        }
    };
    let record = build(&events(14, equal));
    assert_eq!(record.comparisons[0].verdict, VerdictRecord::Same);
    assert_eq!(record.comparisons[0].budget, Some(BudgetVerdict::Within));
}

/// A difference that is clear in one quantity may be unresolved among others: all are one family.
#[test]
fn comparisons_of_all_quantities_are_one_family() {
    // Of 10 epochs, one contradicts in rank 4: p is 2 · 7 / 1024 = 0.014, below 0.04 and above 0.04 / 5.
    let by = |epoch: usize| 0.01 * [1.0, 2.0, 3.0, -4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0][epoch];
    let epochs = events(10, |epoch, case| match case {
        1 => (usual(epoch, 0).0 * f64::exp(by(epoch)), 2.5),
        _ => usual(epoch, case),
    });
    let metric = |name: &str| Metric {
        name: name.to_owned(),
        about: String::new(),
        unit: "us".to_owned(),
        more_is_better: Some(false),
        margin: 0.01,
    };
    let verdicts = |metrics: Vec<Metric>| {
        let plan = Plan { metrics, ..plan() };
        let record = built(&plan, &epochs, Machine::default());
        let further = record.metrics.iter().map(|one| one.comparisons.clone());
        std::iter::once(record.comparisons.clone())
            .chain(further)
            .map(|compared| compared.iter().map(|one| one.verdict).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    assert_eq!(verdicts(Vec::new()), [[VerdictRecord::Slower]]);
    // What no trial has is no comparison.
    let absent = ["a", "b", "c", "d"].map(metric).to_vec();
    assert_eq!(verdicts(absent)[0], [VerdictRecord::Slower]);
    // The same value four times more: none is rejected at 0.04 / 5.
    let present = [RESET_TWICE; 4].map(metric).to_vec();
    assert_eq!(verdicts(present), [[VerdictRecord::Unresolved]; 5]);
}

/// One epoch of twelve far off may stand for many: a case that is far off in 29 % of its epochs shows so few in 9 % of
/// runs of 12, and in 5 % of runs of 14.
#[test]
fn lopsided_epochs_are_not_called_the_same() {
    let verdict = |epochs: usize, far: usize| {
        let dearer = |epoch: usize, case: usize| match case {
            1 => {
                let far = if epoch < far { 1.3 } else { 1.0 };
                let noise = 1.0 + 0.0001 * ((epoch % 5) as f64 - 2.0);
                (usual(epoch, 0).0 * far * noise, 2.5)
            }
            _ => usual(epoch, case),
        };
        let comparison = build(&events(epochs, dearer)).comparisons.remove(0);
        (comparison.verdict, comparison.budget)
    };
    let (same, within) = (VerdictRecord::Same, Some(BudgetVerdict::Within));
    assert_eq!(verdict(12, 0), (same, within));
    let open = (VerdictRecord::Unresolved, Some(BudgetVerdict::CantTell));
    assert_eq!(verdict(12, 1), open);
    // Typical batches of 14 epochs are known to be the same, but the mean of all batches is 2 % more.
    assert_eq!(verdict(14, 1), open);
}

#[test]
fn too_few_epochs_leave_it_open() {
    let record = record(4);
    let comparison = &record.comparisons[0];
    assert_eq!(comparison.verdict, VerdictRecord::Unresolved);
    assert_eq!((comparison.ci95, comparison.relative_ci95), (None, None));
    assert_eq!(comparison.budget, Some(BudgetVerdict::CantTell));
    assert!((comparison.relative - 0.1).abs() < 0.001);
    assert_eq!(record.case("hit").unwrap().raw.as_ref().unwrap().ci95, None);
    assert_eq!(
        comparison.resolve_s, None,
        "four epochs don't tell their spread"
    );
}

#[test]
fn what_is_open_says_how_long_it_would_take() {
    let noisy = |epoch: usize, case: usize| match case {
        1 => (40.0 * (1.005 + 0.03 * (3.7 * epoch as f64).sin()), 2.5),
        _ => usual(epoch, case),
    };
    let record = build(&events(12, noisy));
    let comparison = &record.comparisons[0];
    assert_eq!(comparison.verdict, VerdictRecord::Unresolved);
    assert_eq!(comparison.budget, Some(BudgetVerdict::Within));
    assert!(
        (1.0..8.0).contains(&comparison.detectable.unwrap()),
        "percent"
    );
    // Whole epochs of 2 s each, and more of them than there were.
    let resolve_s = comparison.resolve_s.unwrap();
    assert!(
        resolve_s > 24.0 && near(resolve_s % 2.0, 0.0),
        "{resolve_s}"
    );
}

#[test]
fn only_epochs_that_both_have_are_compared() {
    // The baseline lacks epoch 0, where the case is far off, and the case lacks epoch 1.
    let events: Vec<Event> = events(12, |epoch, case| match (epoch, case) {
        (0, 1) => (400.0, 2.5),
        (1, 0) => (4.0, 2.5),
        _ => usual(epoch, case),
    })
    .into_iter()
    .filter(|event| {
        !matches!(event, Event::Trial { epoch, case, .. }
            if (*epoch, *case) == (0, 0) || (*epoch, *case) == (1, 1))
    })
    .collect();
    let record = build(&events);
    let comparison = &record.comparisons[0];
    assert!(
        near(comparison.p, 2.0 / 1024.0),
        "ten epochs: {comparison:?}"
    );
    assert!(comparison.relative_ci95.unwrap()[1] < 0.102);
    assert_eq!(record.case("hit").unwrap().raw.as_ref().unwrap().epochs, 11);
    assert_eq!(record.case("hit").unwrap().samples[0], [0.0; 0]);
    assert_eq!(record.case("hit").unwrap().samples.len(), 12);
}

#[test]
fn an_invalid_case_never_has_a_number() {
    let mut events = events(12, usual);
    events.push(Event::Invalid {
        epoch: 11,
        case: 0,
        problem: Problem {
            check: "lru misses".into(),
            expected: "0".into(),
            got: "3".into(),
            detail: String::new(),
        },
    });
    let record = build(&events);
    let hit = record.case("hit").unwrap();
    assert_eq!(hit.status, Status::Invalid);
    assert_eq!((&hit.raw, &hit.net), (&None, &None));
    assert_eq!(hit.problems.len(), 1);
    assert_eq!(hit.samples.len(), 12, "what was seen is kept");
    assert_eq!(record.comparisons, []);
    assert!(record.case("miss").unwrap().raw.is_some());
}

#[test]
fn without_its_floor_a_case_has_no_net() {
    let mut events = events(12, usual);
    events.push(Event::Unsupported {
        case: 3,
        reason: "needs Linux 6.9 (can_loop)".into(),
    });
    let record = build(&events);
    let none = record.case("floor/none").unwrap();
    assert_eq!(none.status, Status::Unsupported);
    assert_eq!(none.reason.as_deref(), Some("needs Linux 6.9 (can_loop)"));
    assert_eq!(record.case("hit").unwrap().net, None);
    assert!(record.case("hit").unwrap().raw.is_some());
}

#[test]
fn what_is_not_finite_is_left_out_and_told() {
    let mut events = events(8, usual);
    events.insert(
        1,
        Event::Trial {
            epoch: 0,
            round: 9,
            case: 0,
            trial: trial(f64::NAN, Some(f64::INFINITY)),
        },
    );
    let record = build(&events);
    assert_eq!(record.case("hit").unwrap().samples[0].len(), 3);
    assert_eq!(record.warnings.len(), 1);
    assert_eq!(record.warnings[0].code, "not-finite");
    assert!(record.warnings[0].text.starts_with("2 values"));
}

#[test]
fn spread_seconds_and_memory_are_summed_up() {
    let record = record(12);
    assert_eq!(record.seconds, 24.0);
    // Of an epoch that was cut off, its load is known.
    let mut events = events(3, usual);
    events.retain(|event| !matches!(event, Event::EpochFinished { epoch: 2, .. }));
    let cut_off = build(&events);
    assert!(near(cut_off.seconds, 4.01));
    assert_eq!(record.machine.kernel_bytes, Some(1011));
    assert!(near(record.spread.within_sitting().unwrap(), 1.6));
    assert!(
        (0.1..2.0).contains(&record.spread.epoch),
        "{:?}",
        record.spread
    );
    assert!(
        (0.05..0.4).contains(&record.spread.trial),
        "{:?}",
        record.spread
    );
    assert_eq!(record.spread.sentinel_drift, Some(0.0));
    assert_eq!(record.stop, Stop::Precision);
}

#[test]
fn a_warning_that_comes_again_is_told_once() {
    let warned = Event::Warned(Warning::new("steal", "much"));
    let events = [
        warned.clone(),
        warned,
        Event::Warned(Warning::new("steal", "more")),
    ];
    let record = build(&events);
    assert_eq!(record.warnings.len(), 2);
}

#[test]
fn two_modes_are_shown() {
    let modes = |epoch: usize, case| match case {
        0 => (
            if epoch.is_multiple_of(3) { 50.0 } else { 40.0 } + 0.01 * epoch as f64,
            2.5,
        ),
        _ => usual(epoch, case),
    };
    let record = build(&events(24, modes));
    let modes = &record.case("hit").unwrap().raw.as_ref().unwrap().modes;
    assert_eq!(modes.len(), 2);
    assert!(near(modes[0].share, 2.0 / 3.0) && (modes[1].value - 50.0).abs() < 0.3);
}

fn any_event() -> impl Strategy<Value = Event> {
    let number = prop_oneof![
        8 => 0.1f64..100.0,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(0.0),
        1 => Just(-1.0),
        1 => Just(f64::MAX),
    ];
    let index = 0usize..6;
    prop_oneof![
        1 => (index.clone(), 0f64..1.0).prop_map(|(epoch, load_s)| Event::EpochStarted {
            epoch,
            load_s,
            kernel_bytes: None
        }),
        6 => (index.clone(), index.clone(), number.clone(), prop::option::of(number.clone()))
            .prop_map(|(epoch, case, value, twice)| Event::Trial {
                epoch,
                round: 0,
                case,
                trial: trial(value, twice),
            }),
        1 => (index.clone(), 0usize..20).prop_map(|(epoch, case)| Event::Invalid {
            epoch,
            case,
            problem: Problem {
                check: "c".into(),
                expected: "e".into(),
                got: "g".into(),
                detail: String::new(),
            },
        }),
        1 => (index.clone(), 0f64..9.0).prop_map(|(epoch, seconds)| finished(epoch, seconds)),
        1 => (index, number).prop_map(|(epoch, value)| Event::Sentinel {
                epoch,
                value,
                anchor: Default::default(),
            }),
    ]
}

proptest! {
    #[test]
    fn whatever_happened_makes_a_record_that_reads_back(
        events in prop::collection::vec(any_event(), 0..120)
    ) {
            let record = build(&events);
        let epochs = record.cases[0].samples.len();
        for case in &record.cases {
            prop_assert_eq!(case.samples.len(), epochs);
            prop_assert!(case.secondary.values().all(|values| values.len() == epochs));
        }
        let text = serde_json::to_string(&record).unwrap();
        let read: Record = serde_json::from_str(&text).map_err(|error| {
            TestCaseError::fail(format!("{error}: {text}"))
        })?;
        prop_assert_eq!(read, record);
    }
}

/// Six epochs are the fewest that bear an interval.
#[test]
fn an_aborted_run_has_no_estimate_without_an_interval() {
    let known = |epochs| {
        let record = crate::samples::aborted(epochs);
        let known = record.cases.iter().filter(|case| case.raw.is_some());
        (known.count(), record.comparisons.len())
    };
    assert_eq!([0, 5, 6].map(known), [(0, 0), (0, 0), (4, 1)]);
}
