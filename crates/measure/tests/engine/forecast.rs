//! Forecasts of a run before it starts, and expectations from its first epochs.

use bpfcost_measure::{Event, Expectation, FIRST_EPOCHS, Measurements, Plan, expect, forecast};
use bpfcost_model::Experiment;
use bpfcost_stats::power::detectable_for_spread;

use crate::{
    mock::{Mock, noisy},
    stops::epochs,
};

#[test]
fn the_forecast_is_what_a_run_takes() {
    for cases in [2, 10, 24] {
        let mock = Mock::with(cases, noisy(10, 0.02, 0.01));
        let plan = Plan {
            seconds: Some(60.0),
            ..mock.plan()
        };
        let forecast = forecast(&mock.description(), &plan);
        let measured = mock.run(&plan).0.unwrap();
        let epoch_s = measured.epoch_s[5];
        assert!(
            (forecast.epoch_s / epoch_s - 1.0).abs() < 0.05,
            "{forecast:?}"
        );
        assert!((forecast.epochs as f64 / epochs(&measured) as f64 - 1.0).abs() < 0.05);
        assert!((forecast.seconds / 60.0 - 1.0).abs() < 0.05);
        let first_s: f64 = measured.epoch_s[..forecast.first_look].iter().sum();
        assert!((forecast.first_look_s / first_s - 1.0).abs() < 0.1);
    }
}

#[test]
fn the_forecast_follows_the_stopping_rules() {
    let mock = Mock::new(&[10.0; 5]);
    let of = |plan: Plan| forecast(&mock.description(), &plan);
    let quick = of(Plan {
        quick: true,
        ..mock.plan()
    });
    assert_eq!((quick.epochs, quick.cases), (10, 5));
    assert_eq!(quick.seconds, quick.first_look_s);
    let timed = of(Plan {
        seconds: Some(30.0),
        ..mock.plan()
    });
    assert!(timed.epochs > 10 && (28.0..32.0).contains(&timed.seconds));
}

/// The expectation from the first epochs of a run, and the whole run.
fn expected(epoch_sd: f64, seed: u64, plan: &Plan) -> (Option<Expectation>, Measurements) {
    let mock = Mock::with(2, noisy(seed, epoch_sd, 0.005));
    let (measured, events) = mock.run(plan);
    let mut first = Measurements::new(plan);
    for event in &events {
        assert_eq!(expect(plan, &first), None);
        first.apply(event);
        if matches!(event, Event::EpochFinished { epoch, .. } if epoch + 1 == FIRST_EPOCHS) {
            break;
        }
    }
    (expect(plan, &first), measured.expect("it ends"))
}

#[test]
fn the_first_epochs_show_what_a_run_takes_and_detects() {
    let plan = Plan {
        seconds: Some(30.0),
        budget: Some(0.05),
        ..Mock::new(&[50.0; 2]).plan()
    };
    for epoch_sd in [0.01, 0.1] {
        let mut ratios = Vec::new();
        for seed in 0..15 {
            let (expected, measured) = expected(epoch_sd, seed, &plan);
            let expected = expected.expect("three epochs");
            let took = epochs(&measured) as f64;
            assert!(
                (expected.epochs as f64 / took - 1.0).abs() < 0.05,
                "{expected:?} {took}"
            );
            assert!((expected.seconds / measured.seconds() - 1.0).abs() < 0.05);
            let spread = epoch_sd * std::f64::consts::SQRT_2;
            let truth = detectable_for_spread(spread, epochs(&measured), 1).expect("enough epochs");
            ratios.push(expected.detectable.expect("a comparison").ln_1p() / truth);
            assert_eq!(expected.wanted, 0.05);
        }
        ratios.sort_by(f64::total_cmp);
        // Of three epochs, it is known to a factor of two.
        assert!((0.6..1.6).contains(&ratios[7]), "{epoch_sd}: {ratios:?}");
        assert!(ratios[14] < 3.0, "{epoch_sd}: {ratios:?}");
    }
    // Less noise takes less time.
    let resolve_s = |epoch_sd| expected(epoch_sd, 1, &plan).0.and_then(|one| one.resolve_s);
    assert!(resolve_s(0.1) > resolve_s(0.01));
}

#[test]
fn a_precision_is_expected_to_end_the_run_and_quick_ends_it_at_the_first_look() {
    let plan = Mock::new(&[50.0; 2]).plan();
    let precise = Plan {
        precision: Some(0.01),
        seconds: Some(600.0),
        ..plan.clone()
    };
    let epochs_of = |epoch_sd, plan: &Plan| expected(epoch_sd, 3, plan).0.map(|one| one.epochs);
    let (calm, noisy) = (epochs_of(0.005, &precise), epochs_of(0.05, &precise));
    assert!(calm < noisy && calm >= Some(10), "{calm:?} {noisy:?}");
    let quick = Plan {
        quick: true,
        ..plan
    };
    assert_eq!(epochs_of(0.05, &quick), Some(10));
}
