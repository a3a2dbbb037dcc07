//! Sides of several sessions: measured in turn, or not.

use super::{
    super::*,
    compare::{at, codes},
};
use crate::samples::{gate, with_session_spread};

/// Sessions of a side in these hours; each costs a little more than the one before.
fn sessions(hours: impl IntoIterator<Item = usize>, names: &[&str], base: f64) -> Vec<Record> {
    let one = |(i, hour)| {
        let value = base + 0.1 * i as f64;
        let values: Vec<(&str, f64)> = names.iter().map(|name| (*name, value)).collect();
        at(hour, &values)
    };
    hours.into_iter().enumerate().map(one).collect()
}

#[test]
fn records_in_turn_speak_for_themselves() {
    let old = sessions([0, 2, 4, 6], &["a"], 100.0);
    let result = gate(&old, &sessions([1, 3, 5, 7], &["a"], 104.0), 0.02).unwrap();
    let change = &result.cases[0];
    assert_eq!(
        (change.outcome, change.basis),
        (ChangeOutcome::Regressed, Some(ChangeBasis::Sessions))
    );
    assert_eq!(
        (change.new.unwrap().sessions, change.new.unwrap().ci95),
        (4, None)
    );
    assert!((change.p.unwrap() - 2.0 / 70.0).abs() < 1e-9);
    assert_eq!(codes(&result), [""; 0]);
}

#[test]
fn records_that_were_not_measured_in_turn_do_not() {
    // As many, one side on one day and the other on the next: nothing shows what the days did.
    let old = sessions([0, 1, 2, 3], &["a"], 100.0);
    let result = gate(&old, &sessions([24, 25, 26, 27], &["a"], 104.0), 0.02).unwrap();
    assert_eq!(result.cases[0].basis, Some(ChangeBasis::Widened));
    assert_eq!(result.cases[0].outcome, ChangeOutcome::Unresolved);
    assert_eq!(codes(&result), ["session-spread-unknown", "not-in-turn"]);
    // Nor where no time is known, nor where all have the same.
    for started in ["", "2026-11-24T00:00:00Z"] {
        let untimed = |base| {
            let mut side = sessions([0, 1, 2, 3], &["a"], base);
            for (seed, record) in side.iter_mut().enumerate() {
                started.clone_into(&mut record.started);
                record.seed = base as u64 + seed as u64;
            }
            side
        };
        let result = gate(&untimed(100.0), &untimed(104.0), 0.02).unwrap();
        assert_eq!(
            result.cases[0].basis,
            Some(ChangeBasis::Widened),
            "{started}"
        );
    }
}

#[test]
fn too_few_turns_for_the_exact_test_are_pooled() {
    // Two cases: four turns a side could never show a change in both.
    let two = |first, base| sessions([first, first + 2, first + 4, first + 6], &["a", "b"], base);
    let result = gate(&two(0, 100.0), &two(1, 104.0), 0.02).unwrap();
    assert_eq!(result.cases[0].basis, Some(ChangeBasis::Widened));
    // Their own spread is known from themselves, so that nothing needs to be assumed.
    assert_eq!(codes(&result), ["sessions"]);
    assert_eq!(result.gate, Gate::Regressed);
    // Three turns a side beat one, and three sittings: the interval shrinks with their number. Three sessions in a
    // row do not.
    let width = |hours: [&[usize]; 2]| {
        let side = |hours: &[usize], base| {
            with_session_spread(sessions(hours.iter().copied(), &["a"], base), 1.0)
        };
        let result = gate(&side(hours[0], 100.0), &side(hours[1], 104.0), 0.02).unwrap();
        let [low, high] = result.cases[0].relative_ci95.unwrap();
        (1.0 + high).ln() - (1.0 + low).ln()
    };
    let single = width([&[0], &[1]]);
    let (in_turn, in_sittings) = ([[0, 2, 4], [1, 3, 5]], [[0, 24, 48], [72, 96, 120]]);
    for three in [&in_turn, &in_sittings] {
        let three = [three[0].as_slice(), three[1].as_slice()];
        assert!((single / width(three) - 3f64.sqrt()).abs() < 0.01);
    }
    assert!((single / width([&[0, 1, 2], &[3, 4, 5]]) - 1.0).abs() < 0.01);
}
