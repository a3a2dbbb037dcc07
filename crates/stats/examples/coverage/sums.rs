//! Simulated runs of attach types, each with an empty program and one that does something, either without
//! and with `bpf_stats`: how often the report would say of a sum that it doesn't add up.

use crate::noise::{Dice, Noise, NoisyMachine};
use bpfcost_stats::additive::{Additive, Square, Sum, judge_sums};
use bpfcost_stats::{hodges_lehmann, looks, sample::epoch_medians};

/// Trials a case gets in an epoch.
const TRIALS: usize = 3;
/// The share of the total from which a residual matters.
const MARGIN: f64 = 0.01;
/// The cost of the driver alone, in nanoseconds, as the next two.
const DRIVER: f64 = 5.0;
const BODY: f64 = 20.0;
const TAX: f64 = 35.0;

/// The result of the runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    /// Share of runs in which a sum that adds up was said not to.
    pub(crate) alarms: f64,
    /// The same without the tolerance.
    pub(crate) strict_alarms: f64,
    /// Share of runs in which the one sum that doesn't add up was said not to.
    pub(crate) found: f64,
}

/// `runs` runs of `types` attach types. The first one's tax is larger by `interaction`, a share of its
/// total, where there is a body. A run ends somewhere from its first look to 60 epochs.
pub(crate) fn sums(
    noise: Noise,
    types: usize,
    interaction: f64,
    runs: usize,
    seed: u64,
) -> Answers {
    // Driver; then empty, body, empty with tax, body with tax for each type.
    let mut levels = vec![DRIVER];
    for one in 0..types {
        let empty = DRIVER + 20.0 + 15.0 * one as f64;
        let extra = if one == 0 { interaction } else { 0.0 };
        let both = empty + BODY + TAX;
        let both = both + extra * (both - DRIVER);
        levels.extend([empty, empty + BODY, empty + TAX, both]);
    }
    let first = looks::first_look(3 * types);
    let (mut alarms, mut strict, mut found) = (0usize, 0usize, 0usize);
    for run in 0..runs {
        let seed = seed.wrapping_add((run as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let epochs = first + (Dice::new(!seed).uniform() * (61 - first) as f64) as usize;
        let mut machine = NoisyMachine::new(noise, seed);
        let mut cases = vec![Vec::with_capacity(epochs); levels.len()];
        for _ in 0..epochs {
            let trials = machine.epoch(&levels, TRIALS).trials;
            for (case, median) in cases.iter_mut().zip(epoch_medians(&trials)) {
                case.push(median);
            }
        }
        let answers = |margin: f64| -> Vec<bool> {
            let sums: Vec<Sum> = cases[1..]
                .chunks(4)
                .map(|type_| sum(&cases[0], type_, margin))
                .collect();
            let judged = judge_sums(&sums);
            judged
                .iter()
                .map(|one| one.additive == Additive::No)
                .collect()
        };
        let said = answers(MARGIN);
        let honest = usize::from(interaction != 0.0);
        found += usize::from(said[0]);
        alarms += usize::from(said[honest..].contains(&true));
        strict += usize::from(answers(0.0)[honest..].contains(&true));
    }
    let share = |count: usize| count as f64 / runs as f64;
    Answers {
        alarms: share(alarms),
        strict_alarms: share(strict),
        found: share(found),
    }
}

fn sum(driver: &[f64], type_: &[Vec<f64>], margin: f64) -> Sum {
    let [empty, body, taxed, both] = type_ else {
        return Sum::default();
    };
    let total: Vec<f64> = both
        .iter()
        .zip(driver)
        .map(|(both, driver)| both - driver)
        .collect();
    Sum {
        residuals: Square {
            neither: empty,
            first: body,
            second: taxed,
            both,
        }
        .residuals(),
        tolerance: margin * hodges_lehmann(&total).unwrap_or(0.0),
    }
}
