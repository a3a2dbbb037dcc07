//! Runs in which a pair of cases rests as soon as both are known precisely enough, and leaves its time to the others.

use crate::bounds::BoundsCheck;
use crate::claims::{Bank, TRIALS, holds, seeded};
use crate::noise::{Dice, Noise, NoisyMachine};
use bpfcost_stats::sample::epoch_medians;
use bpfcost_stats::{Differences, Estimate, Policy, Sense, Verdict, judge, looks};

/// The cost of every case.
const COST: f64 = 50.0;

/// The share of its value to which each case is to be known.
const PRECISION: f64 = 0.01;

/// The results of the runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rested {
    /// The share of intervals of a case that hold its cost.
    pub(crate) own: f64,
    /// The share of intervals of the relative difference of a pair that hold 0.
    pub(crate) difference: f64,
    /// The share of runs with at least one `slower` or `faster`.
    pub(crate) alarms: f64,
    /// Half the width of the intervals of the pairs that scatter twice as much, relative to their value, in the mean.
    pub(crate) width: f64,
}

/// Runs of `pairs` pairs in which nothing differs, of 10 to 60 epochs of all cases. In every second pair, all that
/// disturbs a case does so twice. With `rests`, a pair that is precise at a look has no further epoch; else all go on
/// until all are.
pub(crate) fn rested(noise: Noise, pairs: usize, rests: bool, runs: usize, seed: u64) -> Rested {
    let cases = 2 * pairs;
    let policy = Policy {
        margin: 0.0,
        budget: None,
        sense: Sense::Cost,
    };
    let bank = Bank::new(noise, cases, seed);
    let scatters_twice = |case: usize| case / 2 % 2 == 1;
    let mut sums = [0.0_f64; 4];
    for run in 0..runs {
        let mut dice = Dice::new(seeded(!seed, run));
        let mut machine = NoisyMachine::new(noise, seeded(seed, run));
        let mut left = cases as f64 * (10.0 + 50.0 * dice.uniform());
        let mut values = vec![Vec::new(); cases];
        let mut levels = Vec::new();
        let mut going = vec![true; pairs];
        let mut looks = looks::looks(pairs).peekable();
        loop {
            let parts = 2 * going.iter().filter(|going| **going).count();
            left -= parts as f64;
            if parts == 0 || (left < 0.0 && levels.len() >= looks::first_look(pairs)) {
                break;
            }
            let epoch = machine.epoch(&vec![COST; cases], TRIALS);
            levels.push(epoch.level);
            for (case, median) in epoch_medians(&epoch.trials).into_iter().enumerate() {
                let scattered = median * median / COST;
                let value = if scatters_twice(case) {
                    scattered
                } else {
                    median
                };
                values[case].push(if going[case / 2] { value } else { f64::NAN });
            }
            if looks.next_if_eq(&levels.len()).is_some() {
                let open = |pair: usize| {
                    values[2 * pair..2 * pair + 2]
                        .iter()
                        .any(|one| is_open(one))
                };
                let open: Vec<bool> = (0..pairs).map(open).collect();
                let all = open.iter().any(|open| *open);
                going = open
                    .into_iter()
                    .map(|open| if rests { open } else { all })
                    .collect();
            }
        }
        let mut held = [0usize; 2];
        for (case, values) in values.iter().enumerate() {
            let estimate = Estimate::for_case(values);
            if scatters_twice(case) {
                let width = estimate.map_or(f64::NAN, |one| one.half_width() / one.value);
                sums[3] += width / (pairs / 2 * 2) as f64;
            } else {
                let had = values.iter().filter(|value| value.is_finite()).count();
                let cost = COST * bank.centre(noise, &levels[..had]);
                held[0] += usize::from(holds(estimate, cost));
            }
        }
        let pair = |pair: &[Vec<f64>]| Differences::pair(&pair[1], &pair[0]);
        let differences: Vec<Differences> = values.chunks(2).map(pair).collect();
        for difference in &differences {
            held[1] += usize::from(holds(Estimate::for_difference(&difference.log_ratio), 0.0));
        }
        let judged = judge(&differences, &policy);
        let alarm = |verdict: Verdict| matches!(verdict, Verdict::Slower | Verdict::Faster);
        sums[0] += held[0] as f64 / (pairs.div_ceil(2) * 2) as f64;
        sums[1] += held[1] as f64 / pairs as f64;
        sums[2] += f64::from(judged.iter().any(|one| alarm(one.verdict)));
    }
    let [own, difference, alarms, width] = sums.map(|sum| sum / runs as f64);
    Rested {
        own,
        difference,
        alarms,
        width,
    }
}

fn is_open(values: &[f64]) -> bool {
    !Estimate::for_case(values).is_some_and(|one| looks::precise_enough(&one, PRECISION, 0.0))
}

pub(crate) fn print(_: &mut BoundsCheck, runs: usize) {
    let runs = runs / 2;
    println!(
        "Runs in which a pair of cases rests once both are known to 1 %, and in which none does ({runs} runs):"
    );
    println!("coverage, family-wise false alarms, half-width of the cases that scatter most");
    println!("noise       pairs  rests      own  difference  alarms  half-width");
    for noise in Noise::ALL {
        for (pairs, rests) in [(2, false), (2, true), (12, false), (12, true)] {
            let r = rested(noise, pairs, rests, runs, 17);
            let [own, difference, alarms, width] =
                [r.own, r.difference, r.alarms, r.width].map(|share| 100.0 * share);
            println!(
                "{:<12}{pairs:>5}{rests:>7}{own:>9.2}{difference:>12.2}{alarms:>8.2}{width:>12.2}",
                noise.name()
            );
        }
    }
}
