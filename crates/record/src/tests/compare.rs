//! Comparing made-up records whose answers are known.

use bpfcost_stats::session_spread::Level;

use super::super::*;
use crate::samples::{changes, gate, new, old, session, with_session_spread};
use bpfcost_measure::Plan;
use bpfcost_model::{Problem, Role, Unit};

fn outcome(from: f64, to: f64) -> ChangeOutcome {
    changes(&old(&[("a", from)]), &new(&[("a", to)])).cases[0].outcome
}

pub(super) fn codes(changes: &Changes) -> Vec<&str> {
    changes
        .warnings
        .iter()
        .map(|warning| warning.code.as_str())
        .collect()
}

#[test]
fn clear_changes_are_reported() {
    assert_eq!(outcome(100.0, 110.0), ChangeOutcome::Regressed);
    assert_eq!(outcome(110.0, 100.0), ChangeOutcome::Improved);
    assert_eq!(outcome(100.0, 100.4), ChangeOutcome::Same);
    let result = changes(&old(&[("a", 100.0)]), &new(&[("a", 110.0)]));
    let change = &result.cases[0];
    assert_eq!(result.gate, Gate::Regressed);
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
    assert_eq!(codes(&result), ["sessions"]);
}

#[test]
fn near_the_threshold_the_gate_does_not_flicker() {
    // The 90 % interval reaches 1.17 % to either side: 3.1 % is shown to be above zero, but not above 2 %.
    for to in [102.1, 103.1] {
        let result = changes(&old(&[("a", 100.0)]), &new(&[("a", to)]));
        assert_eq!(result.cases[0].outcome, ChangeOutcome::Unresolved, "{to}");
        assert_eq!(result.gate, Gate::Passed);
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
    let of = |count| {
        let sides = [old(&side(100.0, count)), new(&side(101.85, count))];
        let [old, new] = sides.map(|records| with_session_spread(records, 0.5));
        gate(&old, &new, 0.0).unwrap()
    };
    assert!(of(1).cases[0].p.unwrap() < 0.02);
    assert_eq!(of(1).gate, Gate::Regressed);
    assert_eq!(of(40).gate, Gate::Passed);
    assert!(of(40).cases[0].detectable.unwrap() > 1.85);
}

#[test]
fn an_unknown_spread_between_sessions_is_assumed_wide() {
    let (old, new) = (old(&[("a", 100.0)]), new(&[("a", 112.0)]));
    let result = gate(&old, &new, 0.02).unwrap();
    assert_eq!(result.cases[0].outcome, ChangeOutcome::Unresolved);
    assert_eq!(codes(&result), ["session-spread-unknown"]);
    assert!(result.warnings[0].text.contains("self-test"));
    // The records' own knowledge counts, and the larger of two.
    let half = with_session_spread(new.clone(), 0.5);
    for (percent, expected) in [(0.5, Gate::Regressed), (5.0, Gate::Passed)] {
        let old = with_session_spread(old.clone(), percent);
        assert_eq!(gate(&old, &half, 0.02).unwrap().gate, expected);
    }
    // What the machine has kept: sittings a day apart that differ by up to 0.6 %.
    let history = |_: &Record, _| {
        let level = |day: i32| Level {
            began_s: f64::from(day) * 86_400.0,
            value: 50.0 + 0.1 * f64::from(day % 4),
        };
        vec![CaseLevels {
            series: String::new(),
            case: "a".to_owned(),
            levels: (0..30).map(level).collect(),
        }]
    };
    let asked = GateOptions {
        threshold: Some(0.02),
        must_see: None,
    };
    let result = compare(&old, &new, asked, history).unwrap();
    assert_eq!(
        (result.gate, codes(&result)),
        (Gate::Regressed, vec!["sessions"])
    );
    // Records from before sessions were kept know what self-test measured within minutes.
    let mut before = [at(10, &[("a", 100.0)]), at(11, &[("a", 112.0)])];
    before
        .iter_mut()
        .for_each(|one| one.spread.session = Some(0.5));
    let result = gate(&before[..1], &before[1..], 0.02).unwrap();
    assert_eq!(result.gate, Gate::Regressed);
}

/// A session that began in that hour.
pub(super) fn at(hour: usize, values: &[(&str, f64)]) -> Record {
    let started = format!("2026-11-{:02}T{:02}:00:00Z", 1 + hour / 24, hour % 24);
    session(&started, values, 0.001)
}

#[test]
fn a_machine_that_moved_widens_what_can_be_said() {
    // The new side costs 10 % more, and so does the sentinel.
    let side = |hour, value, sentinel| {
        let mut records = with_session_spread(vec![at(hour, &[("a", value)])], 0.5);
        records[0].spread.sentinel = Some(sentinel);
        records
    };
    let with = |sentinel| gate(&side(0, 100.0, 5.0), &side(1, 110.0, sentinel), 0.02).unwrap();
    let (still, moved) = (with(5.0), with(5.5));
    assert_eq!((still.gate, moved.gate), (Gate::Regressed, Gate::Passed));
    let low = |changes: &Changes| changes.cases[0].relative_ci95.unwrap()[0].ln_1p();
    assert!((low(&still) - low(&moved) - 1.1f64.ln()).abs() < 1e-9);
    assert_eq!(codes(&still), ["sessions"]);
    assert_eq!(codes(&moved), ["sentinel-moved", "sessions"]);
    // A machine that became faster hides a rise.
    let hidden = gate(&side(0, 100.0, 5.0), &side(1, 100.0, 4.5), 0.02).unwrap();
    assert_eq!(hidden.cases[0].outcome, ChangeOutcome::Unresolved);
    assert!(hidden.cases[0].relative_ci95.unwrap()[1] > 0.10);
    // 0.5 % is within the margin of kernel costs.
    assert_eq!(codes(&with(5.02)), ["sessions"]);
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
    let result = changes(&old_side, &new_side);
    assert_eq!(result.gate, Gate::Invalid);
    let change = &result.cases[0];
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
    let result = changes(&new_side, &old_side);
    assert_eq!(result.gate, Gate::Passed);
    assert_eq!(result.only_new[0].case, "a");
    assert!(
        result.only_new[0]
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
    let result = changes(
        &old(&[("a", 1.0), ("b", 1.0)]),
        &new(&[("a", 1.0), ("c", 1.0)]),
    );
    assert_eq!((result.only_old.len(), result.only_new.len()), (1, 1));
    assert_eq!(
        (&*result.only_old[0].case, &*result.only_new[0].case),
        ("b", "c")
    );
    assert_eq!(result.gate, Gate::Passed);
    let mut other = old(&[("z", 1.0)]);
    other[0].experiment = "other".into();
    let both = [old(&[("a", 1.0)]), other.clone()].concat();
    let result = changes(&both, &new(&[("a", 1.0)]));
    assert_eq!(result.only_old[0].experiment, "other");
    assert!(
        result.only_old[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("no record")
    );
    let error = gate(&other, &new(&[("a", 1.0)]), 0.02).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the two sides have nothing in common: old has other on host; new has made-up on host"
    );
}

#[test]
fn too_few_epochs_have_no_interval() {
    let mut new_side = new(&[("a", 150.0)]);
    new_side[0].cases[0].raw.as_mut().unwrap().ci95 = None;
    let result = changes(&old(&[("a", 100.0)]), &new_side);
    let change = &result.cases[0];
    // A rise of any size would have gone unnoticed: that is no pass.
    assert_eq!(
        (change.outcome, result.gate),
        (ChangeOutcome::Unresolved, Gate::Blind)
    );
    assert_eq!(result.unjudged().collect::<Vec<_>>(), ["a"]);
    assert_eq!(
        (change.relative, change.relative_ci95, change.p),
        (Some(0.5), None, None)
    );
    assert!(change.note.as_deref().unwrap().contains("too few epochs"));
}

/// A run that was interrupted, or a program that the kernel rejects, has a case without a value: no other case speaks
/// for it.
#[test]
fn a_case_without_a_value_is_not_judged() {
    let values = [("a", 100.0), ("b", 100.0)];
    for status in [Status::Ok, Status::Unsupported] {
        let (old_side, mut new_side) = (old(&values), new(&values));
        (new_side[0].cases[1].raw, new_side[0].cases[1].status) = (None, status);
        let result = changes(&old_side, &new_side);
        assert_eq!(result.gate, Gate::Blind, "{status:?}");
        assert_eq!(result.unjudged().collect::<Vec<_>>(), ["b"]);
        // The other way about: of what could not run before, there is nothing to rise from.
        let back = changes(&new_side, &old_side).gate;
        let expected = match status {
            Status::Ok => Gate::Blind,
            _ => Gate::Passed,
        };
        assert_eq!(back, expected, "{status:?}");
        // A rise elsewhere leads.
        let dearer = |name: &str| session(name, &[("a", 150.0), ("b", 1.0)], 0.001);
        let mut dearer = vec![dearer("new")];
        (dearer[0].cases[1].raw, dearer[0].cases[1].status) = (None, status);
        assert_eq!(changes(&old_side, &dearer).gate, Gate::Regressed);
    }
}

/// Records without a case in common have compared nothing.
#[test]
fn a_gate_that_compared_nothing_did_not_pass() {
    let result = changes(&old(&[("a", 1.0)]), &new(&[("b", 1.0)]));
    assert_eq!((result.cases.len(), result.gate), (0, Gate::Blind));
}

#[test]
fn other_circumstances_are_warned_of_or_refused() {
    let (old_side, same) = (old(&[("a", 1.0)]), new(&[("a", 1.0)]));
    let with = |change: fn(&mut Record)| {
        let mut new_side = same.clone();
        change(&mut new_side[0]);
        let [old, new] = [old_side.clone(), new_side].map(|side| with_session_spread(side, 1.0));
        gate(&old, &new, 0.02)
    };
    let code_of = |change| {
        let result = with(change).unwrap();
        let codes = codes(&result).join(" ");
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
        assert_eq!(code_of(change), code);
    }
    assert!(matches!(
        with(|record| record.asked.cpus = vec![0, 1]),
        Err(CompareError::CpuCount(_, 1, 2))
    ));
}

#[test]
fn a_floor_that_moved_is_warned_of_and_not_gated() {
    let result = changes(
        &old(&[("a", 100.0), ("floor/none", 1.0)]),
        &new(&[("a", 100.0), ("floor/none", 1.5)]),
    );
    assert_eq!(result.gate, Gate::Passed);
    assert_eq!(result.cases.len(), 1);
    assert_eq!(codes(&result), ["sessions", "floor-moved"]);
}

#[test]
fn copies_of_a_run_are_no_sessions() {
    let one = old(&[("a", 100.0)]);
    let twice = [one.clone(), one.clone()].concat();
    let result = changes(&twice, &new(&[("a", 100.0)]));
    assert_eq!(result.cases[0].old.unwrap().sessions, 1);
    assert!(codes(&result).contains(&"copies"));
    let result = changes(&one, &one);
    assert!(codes(&result).contains(&"same-run"));
}

#[test]
fn bad_questions_are_refused() {
    let side = old(&[("a", 1.0)]);
    for threshold in [-0.01, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            gate(&side, &side, threshold),
            Err(CompareError::Threshold(_))
        ));
    }
    assert_eq!(gate(&[], &side, 0.02), Err(CompareError::NoRecord("old")));
    assert_eq!(gate(&side, &[], 0.02), Err(CompareError::NoRecord("new")));
}

#[test]
fn changes_read_back() {
    let result = changes(
        &old(&[("a", 100.0), ("b", 1.0)]),
        &new(&[("a", 107.0), ("c", 1.0)]),
    );
    let text = serde_json::to_string(&result).unwrap();
    assert_eq!(serde_json::from_str::<Changes>(&text).unwrap(), result);
}

#[test]
fn a_plan_that_can_not_be_compared_is_refused() {
    let plan = crate::samples::plan();
    let records = [crate::samples::record(12)];
    let none = GateOptions::default();
    let with = |change: fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        comparable(&records, &plan, none)
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|plan| plan.seed += 1), Ok(()), "times need no seed");
    assert_eq!(with(|plan| plan.cases.truncate(1)), Ok(()));
    assert!(matches!(
        with(|plan| plan.quick = true),
        Err(CompareError::Quick(_))
    ));
    assert!(matches!(
        with(|plan| plan.cpus.push(1)),
        Err(CompareError::CpuCount(_, 1, 2))
    ));
    assert!(matches!(
        with(|plan| plan.unit = Unit::InstructionsPerOp),
        Err(CompareError::Units(..))
    ));
    for change in [
        (|plan| plan.target = "vm:6.12".to_owned()) as fn(&mut Plan),
        |plan| plan.experiment = "another".to_owned(),
        |plan| plan.cases.clear(),
    ] {
        assert!(matches!(
            with(change),
            Err(CompareError::NothingInCommon(..))
        ));
    }
    let must_see = |threshold, must_see| {
        let asked = GateOptions {
            threshold,
            must_see: Some(must_see),
        };
        comparable(&records, &plan, asked)
    };
    assert_eq!(must_see(None, 0.03), Ok(()));
    assert_eq!(must_see(None, 0.02), Err(CompareError::MustSee(0.02, 0.02)));
    assert!(must_see(Some(0.05), 0.03).is_err());
}

/// A floor has the factors of the first case that shares it, which is another one where fewer are measured.
#[test]
fn a_shared_floor_does_not_keep_cases_from_being_compared() {
    let records = [crate::samples::record(12)];
    let with = |role: Role| {
        let mut plan = crate::samples::plan();
        for case in plan.cases.iter_mut().filter(|case| case.role == role) {
            case.factors
                .insert("scenario".to_owned(), "other".to_owned());
        }
        comparable(&records, &plan, GateOptions::default())
    };
    assert_eq!(with(Role::Floor), Ok(()));
    assert!(matches!(with(Role::Case), Err(CompareError::Factor { .. })));
}

/// Counts depend on what was chosen for their run.
#[test]
fn a_plan_of_counts_must_be_the_same() {
    let record = Record {
        unit: Unit::InstructionsPerOp,
        ..crate::samples::record(12)
    };
    let with = |change: fn(&mut Plan)| {
        let mut plan = Plan {
            unit: Unit::InstructionsPerOp,
            ..crate::samples::plan()
        };
        change(&mut plan);
        comparable(std::slice::from_ref(&record), &plan, GateOptions::default())
    };
    assert_eq!(with(|_| ()), Ok(()));
    for (change, named) in [
        ((|plan| plan.seed = 8) as fn(&mut Plan), "seed 7 \u{2192} 8"),
        (|plan| plan.quick = true, "quick false \u{2192} true"),
        (
            |plan| plan.cases.truncate(1),
            "cases that ran together 4 \u{2192} 1",
        ),
    ] {
        let refused = with(change).unwrap_err();
        assert!(matches!(&refused, CompareError::Exact(_, differs) if differs == named));
    }
}
