//! Comparing records of exact targets: a gate without chance.

use super::super::*;
use crate::samples::{compared, session};
use bpfcost_measure::Calibration;
use bpfcost_model::{Batch, Unit};

/// A record whose cases take these ranges over loads, with so many trials that agree.
fn counted(started: &str, cases: &[(&str, f64, [f64; 2], usize)]) -> Vec<Record> {
    let values: Vec<_> = cases
        .iter()
        .map(|(name, value, ..)| (*name, *value))
        .collect();
    let mut record = session(started, &values, 0.0);
    record.target = "exact:6.12".into();
    record.unit = Unit::InstructionsPerOp;
    for (case, (_, value, loads, repeats)) in record.cases.iter_mut().zip(cases) {
        case.calibration = Some(Calibration {
            batch: Batch(512),
            ns_per_op: *value,
            ratio: None,
            attempts: 0,
            traced: false,
        });
        case.samples = vec![vec![*value; 8]; 5];
        let raw = case.raw.as_mut().unwrap();
        raw.ci95 = None;
        raw.loads = Some(*loads);
        raw.repeats = Some(*repeats);
        (raw.min, raw.max) = (value - 8.0, value + 8.0);
    }
    vec![record]
}

fn steady(started: &str, value: f64) -> Vec<Record> {
    counted(started, &[("a", value, [value; 2], 40)])
}

fn outcome(old: &[Record], new: &[Record], threshold: Option<f64>) -> (ChangeOutcome, Gate) {
    let must_see = None;
    let result = compared(
        old,
        new,
        GateOptions {
            threshold,
            must_see,
        },
    )
    .unwrap();
    let change = &result.cases[0];
    assert_eq!((change.basis, change.p), (Some(ChangeBasis::Counts), None));
    (change.outcome, result.gate)
}

#[test]
fn one_instruction_more_fails_the_gate() {
    let old = steady("old", 888.0);
    let gate = |value| outcome(&old, &steady("new", value), None);
    assert_eq!(gate(888.0), (ChangeOutcome::Same, Gate::Passed));
    assert_eq!(gate(889.0), (ChangeOutcome::Regressed, Gate::Regressed));
    assert_eq!(gate(887.0), (ChangeOutcome::Improved, Gate::Passed));
    // A mean over the states of a table is off by what the clock rounds.
    assert_eq!(gate(888.007), (ChangeOutcome::Same, Gate::Passed));
    // One instruction passes where it is allowed for.
    let allowed = outcome(&old, &steady("new", 889.0), Some(0.01));
    assert_eq!(allowed, (ChangeOutcome::Same, Gate::Passed));
}

#[test]
fn loads_that_differ_must_lie_apart() {
    let old = counted("old", &[("a", 942.0, [942.0, 947.0], 24)]);
    let new = |value, loads| counted("new", &[("a", value, loads, 24)]);
    let gate = |new: &[Record]| outcome(&old, new, None).0;
    assert_eq!(gate(&new(945.0, [945.0, 950.0])), ChangeOutcome::Unresolved);
    assert_eq!(gate(&new(948.0, [948.0, 949.0])), ChangeOutcome::Regressed);
    assert_eq!(gate(&new(940.0, [939.0, 941.0])), ChangeOutcome::Improved);
    // What repeats nowhere has the range of its trials.
    let varying = |value: f64| counted("new", &[("a", value, [value, value + 2.0], 0)]);
    let by_chance = |value: f64, epochs: usize| {
        let mut records = counted("new", &[("a", value, [value; 2], 0)]);
        records[0].cases[0].raw.as_mut().unwrap().epochs = epochs;
        records
    };
    let old_by_chance = |epochs| {
        let mut records = by_chance(2000.0, epochs);
        records[0].started = "old".into();
        records
    };
    let (open, regressed) = (ChangeOutcome::Unresolved, ChangeOutcome::Regressed);
    // Two loads that agree prove nothing where trials don't; five do.
    for (epochs, expected) in [(2, open), (5, regressed)] {
        let new = by_chance(2001.0, epochs);
        assert_eq!(outcome(&old_by_chance(epochs), &new, None).0, expected);
    }
    let old = varying(2000.0);
    for (value, expected) in [(2004.0, open), (2030.0, regressed)] {
        assert_eq!(outcome(&old, &varying(value), None).0, expected);
    }
}

#[test]
fn counts_of_different_guests_are_not_compared() {
    let old = steady("old", 888.0);
    let refused = |change: fn(&mut Record)| {
        let mut new = steady("new", 888.0);
        change(&mut new[0]);
        let refused = compared(&old, &new, GateOptions::default());
        matches!(refused, Err(CompareError::Exact(..)))
    };
    assert!(!refused(|_| ()));
    assert!(refused(|record| record.machine.kernel_build = "#2".into()));
    assert!(refused(
        |record| record.machine.emulator = Some("QEMU 9".into())
    ));
    assert!(refused(
        |record| record.machine.mitigations = vec!["spectre_v2: off".into()]
    ));
    assert!(refused(
        |record| record.machine.programs = Some("build 2".into())
    ));
    assert!(refused(|record| record.seed += 1));
    assert!(refused(|record| record.cases.push(record.cases[0].clone())));
    assert!(refused(|record| record.asked.quick = !record.asked.quick));
}
