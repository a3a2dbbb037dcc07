//! The precision that a run claims is the precision that it has, and order makes no effect.

use bpfcost_measure::{Plan, Stop};
use bpfcost_stats::{Differences, Estimate, Policy, Sense, Verdict, judge, sample::epoch_medians};

use crate::mock::{Mock, noisy, normal};

/// The cost of the scripted cases, in ns/op.
const TRUTH: f64 = 50.0;

/// Runs of two cases at this noise; how many of all intervals at the end hold the truth, and whether
/// each run reached what it was asked for.
fn covered(runs: u64, epoch_sd: f64, trial_sd: f64) -> usize {
    let mut covered = 0;
    for seed in 0..runs {
        let mock = Mock::with(2, noisy(1000 + seed, epoch_sd, trial_sd));
        let plan = Plan {
            precision: Some(0.01),
            rounds: None,
            seed,
            ..mock.plan()
        };
        let measured = mock.run(&plan).0.unwrap();
        assert_eq!(measured.stop, Some(Stop::Precision));
        for case in &measured.cases {
            let raw = Estimate::for_case(&epoch_medians(&case.samples)).unwrap();
            assert!(raw.half_width() <= 0.01 * raw.value, "{seed}: {raw:?}");
            covered += usize::from(raw.interval().contains(TRUTH));
        }
    }
    covered
}

#[test]
fn intervals_at_the_stop_are_narrow_and_hold_the_truth() {
    // 400 intervals that hold the truth in 95 % of runs: 380 are expected, standard deviation 4.4.
    for (epoch_sd, trial_sd) in [(0.03, 0.01), (0.01, 0.03), (0.02, 0.0)] {
        let covered = covered(200, epoch_sd, trial_sd);
        assert!(covered >= 364, "{epoch_sd} {trial_sd}: {covered} of 400");
    }
}

#[test]
fn drift_within_rounds_raises_no_alarm() {
    // Twelve equal cases on a machine that slows by 0.05 % a trial within each epoch: in a fixed
    // order the last of a round would cost 0.6 % more than the first, every time.
    let alarmed = (0..100_u64)
        .filter(|&seed| {
            let mock = Mock::with(12, move |lab, ask| {
                let noise = 0.001 * normal([seed, ask.epoch as u64, 0, ask.total as u64]);
                let asks = lab.asks.borrow();
                let first = asks.partition_point(|earlier| earlier.epoch < ask.epoch);
                let drift = 0.0005 * (ask.total - first) as f64;
                Ok(TRUTH * (1.0 + drift + noise) * ask.batch as f64)
            });
            let plan = Plan {
                quick: true,
                seed,
                ..mock.plan()
            };
            let measured = mock.run(&plan).0.unwrap();
            let medians: Vec<Vec<f64>> = measured
                .cases
                .iter()
                .map(|case| epoch_medians(&case.samples))
                .collect();
            let differences: Vec<Differences> = medians[1..]
                .iter()
                .map(|case| Differences::pair(case, &medians[0]))
                .collect();
            let policy = Policy {
                margin: 0.0,
                budget: None,
                sense: Sense::Cost,
            };
            judge(&differences, &policy)
                .iter()
                .any(|comparison| !matches!(comparison.verdict, Verdict::Unresolved { .. }))
        })
        .count();
    // At most 5 of 100 are expected; 12 come by chance once in 600.
    assert!(alarmed <= 12, "{alarmed} of 100");
}
