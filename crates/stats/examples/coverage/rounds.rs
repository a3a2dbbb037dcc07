//! The number of trials of an epoch: a fixed odd number, against the best for the noise, which is √(time of a load /
//! time of a round · variance within epochs / variance between) (Cochran 1977, "Sampling
//! Techniques", section 10.6) and which a run can only estimate.

use crate::noise::Dice;
use bpfcost_stats::{Differences, Estimate, Spread, hodges_lehmann, sample::epoch_medians};

/// Numbers of trials that are tried.
const FIXED: [usize; 4] = [2, 3, 5, 7];
/// Rounds' worth of time that a run has, after its first ten epochs.
const ROUNDS: f64 = 200.0;
/// Relative standard deviation of loads.
const LOAD: f64 = 0.01;

/// Mean half-widths of a difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Widths {
    /// The mean of the numbers chosen.
    #[allow(dead_code)] // the long form prints it
    pub(crate) chosen: f64,
    /// With each of [`FIXED`], as a multiple of the width with the chosen number.
    pub(crate) fixed: [f64; 4],
}

/// Runs where a load takes `price` rounds, and trials scatter by `scatter` times what loads do.
pub(crate) fn widths(price: f64, scatter: f64, runs: usize, seed: u64) -> Widths {
    let mut dice = Dice::new(seed);
    let mut epoch = |trials: usize| -> Vec<f64> {
        let load = LOAD * dice.normal();
        (0..trials)
            .map(|_| (load + scatter * LOAD * dice.normal()).exp())
            .collect()
    };
    let (mut chosen, mut best, mut fixed) = (0.0, 0.0, [0.0; 4]);
    for _ in 0..runs {
        let mut half_width = |first: usize, then: &mut dyn FnMut(&[Vec<f64>]) -> usize| {
            let start: Vec<Vec<f64>> = (0..10).map(|_| epoch(first)).collect();
            let other: Vec<Vec<f64>> = (0..10).map(|_| epoch(first)).collect();
            let trials = then(&start);
            let more = (ROUNDS / (price + trials as f64)) as usize;
            let mut side = |begun: Vec<Vec<f64>>| {
                let rest = (0..more).map(|_| epoch(trials));
                epoch_medians(&begun.into_iter().chain(rest).collect::<Vec<_>>())
            };
            let pair = Differences::pair(&side(start), &side(other));
            Estimate::for_difference(&pair.log_ratio)
                .unwrap()
                .half_width()
        };
        best += half_width(3, &mut |start| {
            let spread = Spread::from_epochs(start).unwrap();
            let trials = (price.sqrt() * spread.trial / spread.epoch)
                .round()
                .clamp(2.0, 10.0);
            chosen += trials;
            trials as usize
        });
        for (width, trials) in fixed.iter_mut().zip(FIXED) {
            *width += half_width(trials, &mut |_| trials);
        }
    }
    Widths {
        chosen: chosen / runs as f64,
        fixed: fixed.map(|width| width / best),
    }
}

/// The centre of epochs of 2, 3, 4 and 5 trials that only ever take longer, relative to that of 3.
pub(crate) fn centres(epochs: usize, seed: u64) -> [f64; 4] {
    let mut dice = Dice::new(seed);
    let centres = [2, 3, 4, 5].map(|trials| {
        let epochs: Vec<Vec<f64>> = (0..epochs)
            .map(|_| {
                let delayed = |dice: &mut Dice| 1.0 + 0.05 * dice.normal().exp();
                (0..trials).map(|_| delayed(&mut dice)).collect()
            })
            .collect();
        hodges_lehmann(&epoch_medians(&epochs)).unwrap()
    });
    centres.map(|centre| centre / centres[1] - 1.0)
}
