//! The simulations in short: a few hundred runs a claim, fixed seeds, bounds widened by what so few runs
//! leave open. The long form is `cargo run --release -p bpfcost-stats --example coverage`.

#[path = "../examples/coverage/claims.rs"]
mod claims;
#[path = "../examples/coverage/noise.rs"]
mod noise;
#[path = "../examples/coverage/sums.rs"]
mod sums;

use bpfcost_stats::sessions::session_spread;
use bpfcost_stats::{Spread, spread};
use claims::MedianDistribution;
use noise::{Dice, Noise, NoisyMachine};

#[test]
fn intervals_cover_under_every_noise() {
    for noise in Noise::ALL {
        for epochs in [10, 20] {
            let c = claims::coverage(noise, epochs, 600, 11);
            assert!(c.own >= 0.93, "{} at {epochs}: {c:?}", noise.name());
            assert!(
                (0.93..=0.97).contains(&c.difference),
                "{noise:?} at {epochs}: {}",
                c.difference
            );
        }
    }
}

#[test]
fn pooled_trials_would_not_cover() {
    assert!(claims::coverage(Noise::TwoMode, 20, 200, 12).pooled < 0.85);
    assert!(claims::coverage(Noise::Normal, 20, 600, 12).pooled < 0.93);
}

#[test]
fn whole_runs_rarely_raise_a_false_alarm() {
    for noise in Noise::ALL {
        for (comparisons, runs) in [(1, 500), (8, 200)] {
            let a = claims::false_alarms(noise, comparisons, runs, 13);
            // 5 % plus three standard errors
            let bound = 0.05 + 3.0 * (0.05 * 0.95 / runs as f64).sqrt();
            assert!(a.without_same <= bound, "{noise:?}, {comparisons}: {a:?}");
            assert!(a.family_wise <= a.without_same);
            assert!(a.epochs >= 10.0);
        }
    }
}

#[test]
fn a_detectable_effect_is_detected_three_times_in_four() {
    for noise in Noise::ALL {
        let found = claims::found_at_detectable(noise, 5, 20, 300, 14);
        assert!((0.62..=0.85).contains(&found), "{noise:?}: {found}");
    }
    let planned = claims::found_as_planned(5, 20, 300, 23);
    assert!((0.65..=0.85).contains(&planned), "{planned}");
    let (found, epochs) = claims::found_when_resolved(Noise::Normal, 5, 14, 300, 15);
    assert!(
        (0.65..=0.90).contains(&found) && epochs > 14.0,
        "{found} at {epochs}"
    );
}

#[test]
fn an_effect_on_the_edge_is_rarely_misjudged() {
    for noise in Noise::ALL {
        let wrong = claims::on_the_edge(noise, 20, 500, 16);
        assert!(
            wrong.iter().all(|&share| share <= 0.08),
            "{noise:?}: {wrong:?}"
        );
    }
}

#[test]
fn two_modes_are_seen_where_they_are() {
    for epochs in [10, 15, 30, 60] {
        for shape in [
            MedianDistribution::Normal,
            MedianDistribution::LogNormal(0.3),
            MedianDistribution::Heavy,
        ] {
            let seen = claims::two_modes_seen(shape, epochs, 2000, 17);
            assert!(seen <= 0.022, "{shape:?} at {epochs}: {seen}");
        }
    }
    for (distance, share, epochs) in [(5.0, 0.2, 60), (5.0, 0.5, 30), (8.0, 0.3, 15)] {
        let seen =
            claims::two_modes_seen(MedianDistribution::Two(distance, share), epochs, 500, 18);
        assert!(seen >= 0.9, "{distance} σ, {share} at {epochs}: {seen}");
    }
}

#[test]
fn parts_that_add_up_are_rarely_said_not_to() {
    for noise in Noise::ALL {
        for (types, runs) in [(1, 400), (10, 100)] {
            let answers = sums::sums(noise, types, 0.0, runs, 24);
            // 5 % plus three standard errors
            let bound = 0.05 + 3.0 * (0.05 * 0.95 / runs as f64).sqrt();
            assert!(answers.alarms <= bound, "{noise:?}, {types}: {answers:?}");
            assert!(answers.alarms <= answers.strict_alarms);
        }
    }
}

#[test]
fn a_tax_that_depends_on_the_body_is_found_among_ten() {
    for noise in Noise::ALL {
        let answers = sums::sums(noise, 10, 0.10, 60, 25);
        assert!(answers.found >= 0.9, "{noise:?}: {answers:?}");
    }
}

#[test]
fn sessions_cover() {
    for records in [1, 3, 4, 6] {
        let (coverage, alarms) = claims::sessions(records, 400, 19);
        assert!(
            coverage >= 0.92 && alarms <= 0.075,
            "{records}: {coverage}, {alarms}"
        );
    }
}

/// The components that went into the noise come out again: loads 1 %, trials 2 %.
#[test]
fn spread_is_taken_apart() {
    let mut machine = NoisyMachine::new(Noise::Normal, 20);
    let epochs: Vec<_> = (0..600)
        .map(|_| machine.epoch(&[50.0], 3).trials.remove(0))
        .collect();
    let found = Spread::of(&epochs).unwrap();
    assert!((found.epoch - 0.01).abs() < 0.0025, "{found:?}");
    assert!((found.trial - 0.02).abs() < 0.002, "{found:?}");

    // A sentinel that is loaded once has no epochs: what it shows is the machine.
    let mut dice = Dice::new(21);
    let still: Vec<Vec<f64>> = (0..600)
        .map(|_| (0..3).map(|_| 50.0 + dice.normal()).collect())
        .collect();
    assert!(spread::sentinel_drift(&still).unwrap() < 0.006);
}

#[test]
fn session_spread_is_the_deviation_of_one_session() {
    let mut dice = Dice::new(22);
    let cases: Vec<Vec<f64>> = (0..300)
        .map(|_| {
            (0..3)
                .map(|_| 50.0 * (0.02 * dice.normal()).exp())
                .collect()
        })
        .collect();
    let found = session_spread(&cases).unwrap();
    assert!((found - 0.02).abs() < 0.002, "{found}");
}
