//! Comparing made-up records whose answers are known.

use std::sync::LazyLock;

use super::super::*;
use crate::experiment::{Problem, Role};

/// A record whose cases have these values, known to a share `half` within the session.
pub(super) fn session(started: &str, values: &[(&str, f64)], half: f64) -> Record {
    static TEMPLATE: LazyLock<Record> = LazyLock::new(|| Record {
        cases: vec![super::record(12).cases.swap_remove(0)],
        ..super::record(1)
    });
    let mut record = TEMPLATE.clone();
    record.started = started.to_owned();
    record.spread.session = None;
    let template = record.cases[0].clone();
    record.cases = values
        .iter()
        .map(|(name, value)| CaseRecord {
            name: (*name).to_owned(),
            role: if name.starts_with("floor") {
                Role::Floor
            } else {
                Role::Case
            },
            raw: template.raw.clone().map(|raw| Raw {
                value: *value,
                ci95: Some([value * (1.0 - half), value * (1.0 + half)]),
                ..raw
            }),
            ..template.clone()
        })
        .collect();
    record
}

fn old(values: &[(&str, f64)]) -> Vec<Record> {
    vec![session("old", values, 0.001)]
}

fn new(values: &[(&str, f64)]) -> Vec<Record> {
    vec![session("new", values, 0.001)]
}

/// With a threshold of 2 % and sessions that differ by half a percent.
fn changes(old: &[Record], new: &[Record]) -> Changes {
    compare(old, new, Some(0.02), |_| Some(0.005)).unwrap()
}

fn outcome(from: f64, to: f64) -> ChangeOutcome {
    changes(&old(&[("a", from)]), &new(&[("a", to)])).cases[0].outcome
}

fn codes(changes: &Changes) -> Vec<&str> {
    changes
        .warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect()
}

#[test]
fn clear_changes_are_told() {
    assert_eq!(outcome(100.0, 110.0), ChangeOutcome::Regressed);
    assert_eq!(outcome(110.0, 100.0), ChangeOutcome::Improved);
    assert_eq!(outcome(100.0, 100.4), ChangeOutcome::Same);
    let found = changes(&old(&[("a", 100.0)]), &new(&[("a", 110.0)]));
    let change = &found.cases[0];
    assert_eq!(found.gate, Gate::Regressed);
    assert_eq!(change.basis, Some(ChangeBasis::Widened));
    assert!((change.relative.unwrap() - 0.10).abs() < 1e-9);
    // √2 · √(0.5² + (0.1 / 1.96)²) = 0.711 %, times 1.96 in logs.
    let [low, high] = change.relative_ci95.unwrap();
    assert!(
        (low.ln_1p() - (1.1f64.ln() - 0.01393)).abs() < 1e-4,
        "{low}"
    );
    assert!(
        (high.ln_1p() - (1.1f64.ln() + 0.01393)).abs() < 1e-4,
        "{high}"
    );
    assert_eq!(change.old.unwrap().value, 100.0);
    assert_eq!(change.old.unwrap().ci95, Some([99.9, 100.1]));
    assert_eq!(change.detectable, None);
    assert_eq!(codes(&found), ["sessions"]);
}

#[test]
fn near_the_threshold_the_gate_does_not_flicker() {
    // The 90 % interval reaches 1.17 % to either side: 3.1 % is shown to be above zero, but not above 2 %.
    for to in [102.1, 103.1] {
        let found = changes(&old(&[("a", 100.0)]), &new(&[("a", to)]));
        assert_eq!(found.cases[0].outcome, ChangeOutcome::Unresolved, "{to}");
        assert_eq!(found.gate, Gate::Passed);
    }
    assert_eq!(outcome(100.0, 103.4), ChangeOutcome::Regressed);
    let note = changes(&old(&[("a", 100.0)]), &new(&[("a", 103.1)])).cases[0]
        .note
        .clone();
    assert!(note.unwrap().contains("threshold"));
    assert_eq!(outcome(103.4, 100.0), ChangeOutcome::Improved);
    assert_eq!(outcome(103.1, 100.0), ChangeOutcome::Unresolved);
    // As much less as the threshold is more: what regresses one way improves the other.
    assert_eq!(outcome(100.0, 103.22), ChangeOutcome::Regressed);
    assert_eq!(outcome(103.22, 100.0), ChangeOutcome::Improved);
}

#[test]
fn the_gate_counts_how_many_cases_it_looks_at() {
    // With a threshold of zero, one case at p ≈ 0.01 is shown; among forty it is not.
    let case_names: Vec<String> = (0..40).map(|index| format!("c{index}")).collect();
    let side = |first: f64, count: usize| -> Vec<(&str, f64)> {
        (0..count)
            .map(|i| (case_names[i].as_str(), if i == 0 { first } else { 100.0 }))
            .collect()
    };
    let gate = |count| {
        let (old, new) = (old(&side(100.0, count)), new(&side(101.85, count)));
        compare(&old, &new, Some(0.0), |_| Some(0.005)).unwrap()
    };
    assert!(gate(1).cases[0].p.unwrap() < 0.02);
    assert_eq!(gate(1).gate, Gate::Regressed);
    assert_eq!(gate(40).gate, Gate::Passed);
    assert!(gate(40).cases[0].detectable.unwrap() > 1.85);
}

#[test]
fn an_unknown_spread_between_sessions_is_assumed_wide() {
    let (old, new) = (old(&[("a", 100.0)]), new(&[("a", 106.0)]));
    let found = compare(&old, &new, Some(0.02), |_| None).unwrap();
    assert_eq!(found.cases[0].outcome, ChangeOutcome::Unresolved);
    assert_eq!(codes(&found), ["session-spread-unknown"]);
    assert!(found.warnings[0].text.contains("self-test"));
    // The records' own knowledge counts, and the larger of two.
    let mut told = new.clone();
    told[0].spread.session = Some(0.5);
    assert_eq!(
        compare(&old, &told, Some(0.02), |_| None).unwrap().gate,
        Gate::Regressed
    );
    assert_eq!(
        compare(&old, &told, Some(0.02), |_| Some(0.03))
            .unwrap()
            .gate,
        Gate::Passed
    );
}

/// Four records a side of one case.
fn sessions(side: &str, base: f64, count: usize) -> Vec<Record> {
    (0..count)
        .map(|i| {
            session(
                &format!("{side}{i}"),
                &[("a", base + 0.1 * i as f64)],
                0.001,
            )
        })
        .collect()
}

#[test]
fn several_records_a_side_speak_for_themselves() {
    let found = compare(
        &sessions("old", 100.0, 4),
        &sessions("new", 104.0, 4),
        Some(0.02),
        |_| None,
    );
    let found = found.unwrap();
    let change = &found.cases[0];
    assert_eq!(
        (change.outcome, change.basis),
        (ChangeOutcome::Regressed, Some(ChangeBasis::Sessions))
    );
    assert_eq!(
        (change.new.unwrap().sessions, change.new.unwrap().ci95),
        (4, None)
    );
    assert!((change.p.unwrap() - 2.0 / 70.0).abs() < 1e-9);
    assert_eq!(codes(&found), [""; 0]);
}

#[test]
fn too_few_sessions_for_the_exact_test_are_pooled() {
    // Two cases: four sessions a side could never show a change in both, pooled they can.
    let two = |side: &str, base: f64| -> Vec<Record> {
        (0..4)
            .map(|i| {
                let value = base + 0.1 * f64::from(i);
                session(&format!("{side}{i}"), &[("a", value), ("b", value)], 0.001)
            })
            .collect()
    };
    let found = compare(&two("old", 100.0), &two("new", 104.0), Some(0.02), |_| None).unwrap();
    assert_eq!(found.cases[0].basis, Some(ChangeBasis::Widened));
    assert_eq!(found.gate, Gate::Regressed);
    // Their own spread is known from themselves, so that nothing needs to be assumed.
    assert_eq!(codes(&found), ["sessions"]);
    // Three sessions a side beat one: the interval shrinks with their number.
    let width = |count| {
        let found = compare(
            &sessions("old", 100.0, count),
            &sessions("new", 104.0, count),
            Some(0.02),
            |_| Some(0.01),
        );
        let [low, high] = found.unwrap().cases[0].relative_ci95.unwrap();
        high - low
    };
    assert!((width(1) / width(3) - 3f64.sqrt()).abs() < 0.01);
}

#[test]
fn an_invalid_case_fails_the_gate() {
    let (old_side, mut new_side) = (
        old(&[("a", 100.0), ("b", 1.0)]),
        new(&[("a", 100.0), ("b", 1.0)]),
    );
    let case = &mut new_side[0].cases[0];
    case.status = Status::Invalid;
    case.problems = vec![Problem {
        check: "lru misses".into(),
        expected: "0".into(),
        got: "3".into(),
        detail: String::new(),
    }];
    let found = changes(&old_side, &new_side);
    assert_eq!(found.gate, Gate::Invalid);
    let change = &found.cases[0];
    assert_eq!(
        (change.case.as_str(), change.outcome),
        ("a", ChangeOutcome::Invalid)
    );
    assert_eq!(
        change.note.as_deref(),
        Some("lru misses: expected 0, got 3")
    );
    assert_eq!((change.new, change.relative), (None, None));
    // On the old side it is only reported: the new side may be the repair.
    let found = changes(&new_side, &old_side);
    assert_eq!(found.gate, Gate::Passed);
    assert_eq!(found.only_new[0].case, "a");
    assert!(
        found.only_new[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("failed")
    );
    // A regression elsewhere leads.
    new_side[0].cases[1].raw.as_mut().unwrap().value = 1.2;
    new_side[0].cases[1].raw.as_mut().unwrap().ci95 = Some([1.19, 1.21]);
    assert_eq!(changes(&old_side, &new_side).gate, Gate::Regressed);
}

#[test]
fn cases_of_one_side_are_listed() {
    let found = changes(
        &old(&[("a", 1.0), ("b", 1.0)]),
        &new(&[("a", 1.0), ("c", 1.0)]),
    );
    assert_eq!((found.only_old.len(), found.only_new.len()), (1, 1));
    assert_eq!(
        (&*found.only_old[0].case, &*found.only_new[0].case),
        ("b", "c")
    );
    assert_eq!(found.gate, Gate::Passed);
    let mut other = old(&[("z", 1.0)]);
    other[0].experiment = "other".into();
    let both = [old(&[("a", 1.0)]), other.clone()].concat();
    let found = changes(&both, &new(&[("a", 1.0)]));
    assert_eq!(found.only_old[0].experiment, "other");
    assert!(
        found.only_old[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("no record")
    );
    let error = compare(&other, &new(&[("a", 1.0)]), Some(0.02), |_| None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the two sides have nothing in common: old has other on host; new has made-up on host"
    );
}

#[test]
fn too_few_epochs_have_no_interval() {
    let mut new_side = new(&[("a", 150.0)]);
    new_side[0].cases[0].raw.as_mut().unwrap().ci95 = None;
    let found = changes(&old(&[("a", 100.0)]), &new_side);
    let change = &found.cases[0];
    assert_eq!(
        (change.outcome, found.gate),
        (ChangeOutcome::Unresolved, Gate::Passed)
    );
    assert_eq!(
        (change.relative, change.relative_ci95, change.p),
        (Some(0.5), None, None)
    );
    assert!(change.note.as_deref().unwrap().contains("too few epochs"));
}

#[test]
fn other_circumstances_are_told_or_refused() {
    let (old_side, same) = (old(&[("a", 1.0)]), new(&[("a", 1.0)]));
    let with = |change: fn(&mut Record)| {
        let mut new_side = same.clone();
        change(&mut new_side[0]);
        compare(&old_side, &new_side, Some(0.02), |_| Some(0.01))
    };
    let told = |change| {
        let found = with(change).unwrap();
        let codes = codes(&found).join(" ");
        codes.replace("sessions", "").trim().to_owned()
    };
    type Edit = fn(&mut Record);
    let cases: [(Edit, &str); 6] = [
        (|_| {}, ""),
        (
            |record| record.machine.kernel = "6.18".into(),
            "machine-differs",
        ),
        (|record| record.machine.bpf_stats = true, "machine-differs"),
        (|record| record.machine.steal_ms = 5.0, ""),
        (|record| record.bpfcost = "0.0.9".into(), "version-differs"),
        (|record| record.asked.cpus = vec![1], "cpus-differ"),
    ];
    for (change, code) in cases {
        assert_eq!(told(change), code);
    }
    assert!(matches!(
        with(|record| record.asked.cpus = vec![0, 1]),
        Err(CompareError::CpuCount(_, 1, 2))
    ));
}

#[test]
fn a_floor_that_moved_is_told_and_not_gated() {
    let found = changes(
        &old(&[("a", 100.0), ("floor/none", 1.0)]),
        &new(&[("a", 100.0), ("floor/none", 1.5)]),
    );
    assert_eq!(found.gate, Gate::Passed);
    assert_eq!(found.cases.len(), 1);
    assert_eq!(codes(&found), ["sessions", "floor-moved"]);
}

#[test]
fn copies_of_a_run_are_no_sessions() {
    let one = old(&[("a", 100.0)]);
    let twice = [one.clone(), one.clone()].concat();
    let found = changes(&twice, &new(&[("a", 100.0)]));
    assert_eq!(found.cases[0].old.unwrap().sessions, 1);
    assert!(codes(&found).contains(&"copies"));
    let found = changes(&one, &one);
    assert!(codes(&found).contains(&"same-run"));
}

#[test]
fn bad_questions_are_refused() {
    let side = old(&[("a", 1.0)]);
    for threshold in [-0.01, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            compare(&side, &side, Some(threshold), |_| None),
            Err(CompareError::Threshold(_))
        ));
    }
    assert_eq!(
        compare(&[], &side, Some(0.02), |_| None),
        Err(CompareError::NoRecord("old"))
    );
    assert_eq!(
        compare(&side, &[], Some(0.02), |_| None),
        Err(CompareError::NoRecord("new"))
    );
}

#[test]
fn changes_read_back() {
    let found = changes(
        &old(&[("a", 100.0), ("b", 1.0)]),
        &new(&[("a", 107.0), ("c", 1.0)]),
    );
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), found);
}
