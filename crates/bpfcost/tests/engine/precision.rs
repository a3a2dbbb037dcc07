//! The precision that a run claims is the precision that it has.

use bpfcost::measure::{Plan, Stop};
use bpfcost_stats::{Estimate, sample::epoch_medians};

use crate::mock::{Mock, noisy};

/// What the scripted cases cost, in ns/op.
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
            let raw = Estimate::of(&epoch_medians(&case.samples)).unwrap();
            assert!(raw.half_width() <= 0.01 * raw.value, "{seed}: {raw:?}");
            covered += usize::from(raw.interval().contains(TRUTH));
        }
    }
    covered
}

#[test]
fn intervals_at_the_stop_are_narrow_and_hold_the_truth() {
    // 400 intervals at 95 %. Stopping on width costs about a point: 375 are expected, standard
    // deviation 5.
    for (epoch_sd, trial_sd) in [(0.03, 0.01), (0.01, 0.03), (0.02, 0.0)] {
        let covered = covered(200, epoch_sd, trial_sd);
        assert!(covered >= 362, "{epoch_sd} {trial_sd}: {covered} of 400");
    }
}
