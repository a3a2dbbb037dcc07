//! Simulated runs of a workload with a probe that does nothing: how often its estimate lies farther from 0 than the
//! windows without a probe say.

use crate::bounds::BoundsCheck;
use crate::noise::{Dice, Noise, NoisyMachine};
use bpfcost_stats::{Differences, halves, hodges_lehmann, sample::epoch_medians};

/// The result of the runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NothingRead {
    /// Share of runs whose estimate was farther from 0.
    pub(crate) outside: f64,
    /// The mean of the reach that the windows state.
    pub(crate) reach: f64,
}

/// `runs` runs of so many epochs, each with so many windows without a probe and as many with one that does nothing, on
/// one server. In each round, chance decides which comes first.
pub(crate) fn outside(
    noise: Noise,
    windows: usize,
    epochs: usize,
    runs: usize,
    seed: u64,
) -> NothingRead {
    let (mut outside, mut reaches) = (0usize, 0.0);
    for run in 0..runs {
        let seed = seed.wrapping_add((run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut machine = NoisyMachine::new(noise, seed);
        let mut dice = Dice::new(!seed);
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..epochs {
            // One server, so one case.
            let trials = machine.epoch(&[100.0], 2 * windows).trials.concat();
            let mut epoch = [Vec::new(), Vec::new()];
            for round in trials.chunks(2) {
                let first = usize::from(dice.uniform() < 0.5);
                epoch[first].push(round[0]);
                epoch[1 - first].push(round[1]);
            }
            let [off, on] = epoch;
            sides[0].push(off);
            sides[1].push(on);
        }
        let [off, on] = sides.each_ref().map(|side| epoch_medians(side));
        let read = hodges_lehmann(&Differences::pair(&on, &off).log_ratio).unwrap_or(f64::NAN);
        let reach = halves::reach(&sides[0], seed).unwrap_or(f64::NAN);
        outside += usize::from(read.abs() > reach);
        reaches += reach;
    }
    NothingRead {
        outside: outside as f64 / runs as f64,
        reach: reaches / runs as f64,
    }
}

pub(crate) fn print(ledger: &mut BoundsCheck, runs: usize) {
    let runs = runs / 5;
    println!(
        "A probe that does nothing reads more than windows without it say (at most 7; {runs} runs)"
    );
    println!("noise       windows  epochs  outside  reach, %");
    for noise in Noise::ALL {
        for (windows, epochs) in [(2, 10), (2, 30), (5, 10), (5, 30), (6, 20)] {
            let read = outside(noise, windows, epochs, runs, 12);
            let outside = ledger.figure(read.outside, 0.0, 0.07);
            let reach = 100.0 * read.reach;
            println!(
                "{:<12}{windows:>7}{epochs:>8}{outside:>9}{reach:>9.2}",
                noise.name()
            );
        }
    }
}
