//! Batches reach their goal, and what is not proportional is reported.

use bpfcost_measure::{Calibration, Event, Measurements, PROPORTIONALITY, Warning};
use bpfcost_model::{Batch, Fault, Sizing};

use crate::mock::{Ask, Lab, Mock, normal};

/// The calibration of one case, from a run of one epoch that then ends.
fn calibrate(
    sizing: Sizing,
    elapsed: impl Fn(&Lab, Ask) -> Result<f64, Fault> + 'static,
) -> (Calibration, Vec<Warning>, Vec<Ask>) {
    let mut mock = Mock::with(1, elapsed);
    mock.cases[0].sizing = sizing;
    mock.unload = std::rc::Rc::new(|lab, _| {
        lab.interrupt();
        Ok(())
    });
    let (measured, _) = mock.run(&mock.plan());
    let measured = measured.unwrap();
    let asks = mock.lab.asks.borrow().clone();
    (
        measured.cases[0].calibration.unwrap(),
        measured.warnings,
        asks,
    )
}

const FREE: Sizing = Sizing::Calibrated { most: None };

#[test]
fn the_batch_reaches_the_goal_whatever_an_operation_costs() {
    // ns/op from half a nanosecond to five milliseconds, with a clock read of 40 ns in each batch.
    for cost in [0.5, 1.0, 3.3, 26.0, 275.0, 4e3, 6e4, 9e5, 5e6] {
        let (found, warnings, asks) =
            calibrate(FREE, move |_, ask| Ok(40.0 + cost * ask.batch as f64));
        let batch_ns = cost * found.batch.0 as f64;
        assert!((0.9e7..=1.1e7).contains(&batch_ns), "{cost}: {batch_ns}");
        assert!(
            (found.ns_per_op / cost - 1.0).abs() < 0.01,
            "{cost}: {found:?}"
        );
        assert!((found.ratio.unwrap() - 2.0).abs() < 0.01);
        assert_eq!(found.attempts, 1);
        assert_eq!(warnings, []);
        let longest = asks.iter().map(|ask| ask.batch).max().unwrap();
        assert!(cost * longest as f64 <= 1.02e7, "{cost}: {longest}");
        assert!(asks.len() <= 13, "{cost}: {} trials", asks.len());
    }
}

#[test]
fn an_operation_longer_than_the_goal_is_a_batch_of_its_own() {
    let (found, warnings, asks) = calibrate(FREE, |_, ask| Ok(3e7 * ask.batch as f64));
    assert_eq!(found.batch, Batch(1));
    assert_eq!((found.ratio, found.attempts), (None, 0));
    assert_eq!(warnings, []);
    assert!(asks.iter().all(|ask| ask.batch == 1));
}

#[test]
fn no_trial_exceeds_the_cap() {
    for most in [1, 2, 3, 5, 100, 1_001, 50_000] {
        let (found, warnings, asks) =
            calibrate(Sizing::Calibrated { most: Some(most) }, |_, ask| {
                Ok(20.0 * ask.batch as f64)
            });
        assert_eq!(found.batch, Batch(most));
        assert!(asks.iter().all(|ask| ask.batch <= most), "{most}");
        assert_eq!(found.ratio.is_some(), most >= 2);
        assert_eq!(warnings, []);
    }
}

#[test]
fn a_cap_beyond_the_goal_does_not_count() {
    let (found, ..) = calibrate(
        Sizing::Calibrated {
            most: Some(10_000_000),
        },
        |_, ask| Ok(100.0 * ask.batch as f64),
    );
    assert_eq!(found.batch, Batch(100_000));
}

#[test]
fn a_fixed_batch_is_taken_as_it_is() {
    let (found, warnings, asks) = calibrate(Sizing::Fixed(24), |_, ask| {
        Ok(5000.0 + 20.0 * ask.batch as f64)
    });
    assert_eq!(found.batch, Batch(24));
    assert_eq!((found.ratio, found.attempts), (None, 0));
    assert_eq!(warnings, []);
    // Calibration and warm-up, then three rounds.
    assert_eq!(asks.len(), 5);
    assert!(asks.iter().all(|ask| ask.batch == 24));
}

#[test]
fn a_fixed_part_is_told() {
    // At most 100 operations of 20 ns, with 1 µs around them: T(100) / T(50) is 1.5.
    let (found, warnings, _) = calibrate(Sizing::Calibrated { most: Some(100) }, |_, ask| {
        Ok(1000.0 + 20.0 * ask.batch as f64)
    });
    assert_eq!(found.attempts, 4);
    assert!((found.ratio.unwrap() - 1.5).abs() < 1e-9);
    let [warning] = warnings.as_slice() else {
        panic!("{warnings:?}");
    };
    assert_eq!(warning.code, PROPORTIONALITY);
    for part in ["c0", "100 operations", "1.50 times", "4 attempts"] {
        assert!(warning.text.contains(part), "{part}: {}", warning.text);
    }
}

#[test]
fn operations_that_become_dearer_are_told() {
    let (found, warnings, _) = calibrate(FREE, |_, ask| Ok(0.01 * (ask.batch as f64).powf(1.4)));
    assert!(found.ratio.unwrap() > 2.5);
    assert_eq!(warnings.len(), 1);
}

#[test]
fn just_within_five_percent_passes_and_just_beyond_is_told() {
    for (exponent, warns) in [(1.065, false), (1.080, true), (0.930, false), (0.915, true)] {
        // T(2N) / T(N) = 2^exponent: 2.092, 2.114, 1.905, 1.886.
        let (_, warnings, _) = calibrate(FREE, move |_, ask| {
            Ok(10.0 * (ask.batch as f64).powf(exponent))
        });
        assert_eq!(!warnings.is_empty(), warns, "{exponent}");
    }
}

#[test]
fn a_disturbed_check_is_made_again() {
    // Warm, the batch of 200,000 of 50 ns is found in six trials; the first check is disturbed.
    let (found, warnings, _) = calibrate(FREE, |_, ask| {
        let slow = if (5..8).contains(&ask.before) && ask.batch > 50_000 {
            1.0 + 0.2 * (ask.before % 2) as f64
        } else {
            1.0
        };
        Ok(50.0 * ask.batch as f64 * slow)
    });
    assert!((2..=4).contains(&found.attempts), "{found:?}");
    assert!((found.ratio.unwrap() - 2.0).abs() < 0.1);
    assert!((180_000..=220_000).contains(&found.batch.0));
    assert_eq!(warnings, []);
}

#[test]
fn the_ratio_nearest_two_is_told() {
    // Capped at 1,000 operations; the four checks are trials 5 to 12: T(N), T(2N) and so on.
    let twice_s = [1.5, 1.8, 2.6, 1.2];
    let (found, warnings, _) = calibrate(Sizing::Calibrated { most: Some(1000) }, move |_, ask| {
        let check = ask.before.saturating_sub(4);
        match (check % 2, ask.batch) {
            (0, 500) => Ok(1e4),
            (1, 1000) => Ok(1e4 * twice_s[check / 2 % 4]),
            _ => Ok(20.0 * ask.batch as f64),
        }
    });
    assert_eq!(found.attempts, 4);
    assert_eq!(found.ratio, Some(1.8));
    assert!(warnings[0].text.contains("1.80 times"));
}

#[test]
fn a_pause_in_any_one_trial_is_got_over() {
    for paused in 0..10 {
        let (found, warnings, _) = calibrate(FREE, move |_, ask| {
            let pause = if ask.before == paused { 2e7 } else { 0.0 };
            Ok(pause + 50.0 * ask.batch as f64)
        });
        let batch_ns = 50.0 * found.batch.0 as f64;
        assert!((0.3e7..=1.1e7).contains(&batch_ns), "{paused}: {found:?}");
        assert_eq!(warnings, [], "{paused}");
    }
}

#[test]
fn usual_noise_passes() {
    let warns = (0..200)
        .filter(|&seed| {
            let (_, warnings, _) = calibrate(FREE, move |_, ask| {
                let noise = 0.02 * normal([seed, 1, 2, ask.before as u64]);
                Ok(50.0 * ask.batch as f64 * noise.exp())
            });
            !warnings.is_empty()
        })
        .count();
    assert_eq!(warns, 0);
}

#[test]
fn a_clock_that_stands_still_does_not_hang() {
    let (found, warnings, _) = calibrate(FREE, |_, _| Ok(0.0));
    assert_eq!(found.batch, Batch(1_000_000_000));
    assert_eq!(found.ratio, None);
    assert_eq!(warnings.len(), 1);
}

#[test]
fn later_epochs_keep_the_batch() {
    // Dearer by half after the first epoch: the batch stays, so that epochs differ in nothing else.
    let mock = Mock::with(2, |_, ask| {
        let cost = if ask.epoch == 0 { 50.0 } else { 75.0 };
        Ok(cost * ask.batch as f64)
    });
    let mut plan = mock.plan();
    plan.quick = true;
    let (measured, events) = mock.run(&plan);
    let calibrated = events
        .iter()
        .filter(|event| matches!(event, Event::Calibrated { .. }))
        .count();
    assert_eq!(calibrated, 2);
    let measured: Measurements = measured.unwrap();
    let batch = measured.cases[0].calibration.unwrap().batch.0;
    let asks = mock.lab.asks.borrow();
    let later: Vec<u64> = asks
        .iter()
        .filter(|ask| ask.epoch > 0 && ask.case == 0)
        .map(|ask| ask.batch)
        .collect();
    assert_eq!(later[..4], [batch / 10, batch, batch, batch]);
    assert_eq!(later.len(), 9 * 4);
}
