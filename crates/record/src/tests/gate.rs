//! The gate's promises, by simulation: how often it fails where it should not and where it should, and the rise that it
//! says it could see.

use rand::RngExt;
use rand_pcg::{Pcg64Mcg, rand_core::SeedableRng};

use bpfcost_stats::sessions::{exact_suffices, turns_needed};

use super::super::*;
use crate::samples::{compared, gate, new, old, session, with_session_spread};

#[test]
fn turns_needed_grow_with_the_number_of_cases() {
    assert_eq!([1, 2, 24, 1000].map(turns_needed), [4, 5, 7, 10]);
    assert!(!exact_suffices(0, 9, 1) && !exact_suffices(1, 20, 1));
    assert!(exact_suffices(3, 5, 1), "2 of 56 ways");
}

/// A standard normal number: the sum of twelve uniform ones, which is near enough.
fn normal(rng: &mut Pcg64Mcg) -> f64 {
    (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
}

/// The share of runs in which the gate fails and in which case 0 has regressed, where every case
/// of the new side truly costs `rise` more and sessions differ by 1 %.
fn failures(cases: usize, a_side: usize, rise: f64, threshold: f64) -> (f64, f64) {
    const RUNS: usize = 400;
    const SPREAD: f64 = 0.01;
    /// A run's uncertainty about its own session: the half-width of its interval.
    const HALF: f64 = 0.002;
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let names: Vec<String> = (0..cases).map(|index| format!("c{index}")).collect();
    let mut side = |name: &str, level: f64| -> Vec<Record> {
        (0..a_side)
            .map(|index| {
                let values: Vec<(&str, f64)> = names
                    .iter()
                    .map(|case| {
                        let noise = SPREAD * normal(&mut rng) + HALF / 1.96 * normal(&mut rng);
                        (case.as_str(), level * noise.exp())
                    })
                    .collect();
                // In turn, an hour apart.
                let hour = 2 * index + usize::from(name == "new");
                session(&format!("2026-11-24T{hour:02}:00:00Z"), &values, HALF)
            })
            .collect()
    };
    let (mut gate, mut first) = (0, 0);
    for _ in 0..RUNS {
        let [old, new] = [side("old", 100.0), side("new", 100.0 * (1.0 + rise))]
            .map(|records| with_session_spread(records, 100.0 * SPREAD));
        let result = crate::samples::gate(&old, &new, threshold).unwrap();
        gate += usize::from(result.gate == Gate::Regressed);
        first += usize::from(result.cases[0].outcome == ChangeOutcome::Regressed);
    }
    let share = |count: usize| count as f64 / RUNS as f64;
    (share(gate), share(first))
}

#[test]
fn without_a_change_the_gate_rarely_fails() {
    // At the strictest threshold, zero, 5 % over all cases; 400 runs estimate it to ± 2.2 %.
    for (cases, a_side) in [(1, 1), (12, 1), (12, 3), (1, 4)] {
        let (gate, _) = failures(cases, a_side, 0.0, 0.0);
        assert!(gate <= 0.07, "{cases} cases, {a_side} a side: {gate}");
        let (gate, _) = failures(cases, a_side, 0.0, 0.02);
        assert!(
            gate <= 0.01,
            "{cases} cases, {a_side} a side, at 2 %: {gate}"
        );
    }
}

#[test]
fn a_rise_as_large_as_the_threshold_mostly_passes() {
    for a_side in [1, 3] {
        let (_, first) = failures(3, a_side, 0.02, 0.02);
        assert!(first <= 0.07, "{a_side} a side: {first}");
    }
}

#[test]
fn a_large_rise_is_found_and_more_records_find_smaller_ones() {
    let (_, large) = failures(3, 1, 0.08, 0.02);
    assert!(large > 0.9, "{large}");
    let (_, single) = failures(3, 1, 0.045, 0.02);
    let (_, several) = failures(3, 4, 0.045, 0.02);
    assert!(
        several > 0.85 && several > single + 0.2,
        "{single} {several}"
    );
}

#[test]
fn a_gate_can_be_asked_what_it_could_see() {
    let (old, new) = (old(&[("a", 100.0)]), new(&[("a", 103.1)]));
    let (old, new) = (with_session_spread(old, 0.5), with_session_spread(new, 0.5));
    let seeing = |new: &[Record], must_see| {
        let threshold = Some(0.02);
        let asked = GateOptions {
            threshold,
            must_see,
        };
        compared(&old, new, asked)
    };
    let asked = |must_see| seeing(&new, must_see);
    let sees = asked(None).unwrap().cases[0].gate_sees.unwrap() / 100.0;
    // The 90 % interval reaches 1.17 % below the change: 2 % · 1.0117 · 1.0048.
    assert!((sees - 0.0369).abs() < 2e-4, "{sees}");
    assert_eq!(asked(Some(sees + 0.001)).unwrap().gate, Gate::Passed);
    let blind = asked(Some(sees - 0.001)).unwrap();
    assert_eq!(blind.gate, Gate::Blind);
    assert_eq!(blind.blind().count(), 1);
    // What regressed was seen, however wide the interval.
    let dearer = with_session_spread(crate::samples::new(&[("a", 150.0)]), 0.5);
    let result = seeing(&dearer, Some(0.021)).unwrap();
    assert_eq!((result.gate, result.blind().count()), (Gate::Regressed, 0));
    // A case without an interval could not have been seen at all.
    let mut few = dearer;
    few[0].cases[0].raw.as_mut().unwrap().ci95 = None;
    assert_eq!(seeing(&few, Some(10.0)).unwrap().gate, Gate::Blind);
    assert_eq!(asked(Some(0.02)), Err(CompareError::MustSee(0.02, 0.02)));
}

/// The rise that a gate says it could see fails it in about three of four runs.
#[test]
fn what_a_gate_sees_fails_it() {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let mut run = |rise: f64| {
        let mut side = |name: &str, level: f64| {
            let value = level * (0.01 * normal(&mut rng)).exp();
            with_session_spread(vec![session(name, &[("a", value)], 1e-6)], 1.0)
        };
        gate(
            &side("old", 100.0),
            &side("new", 100.0 * (1.0 + rise)),
            0.02,
        )
        .unwrap()
    };
    let sees = run(0.0).cases[0].gate_sees.unwrap() / 100.0;
    let failed = (0..2000).filter(|_| run(sees).gate == Gate::Regressed);
    let share = failed.count() as f64 / 2000.0;
    assert!((0.71..=0.79).contains(&share), "{share}");
}
