//! Runs of servers with probes that cost nothing: how often any quantity has a false verdict.

use crate::noise::Dice;
use bpfcost_stats::{
    Differences, Policy, Quantity, Sense, Verdict, judge, judge_quantities, looks, power,
};

/// CPU time, machine, throughput, median and 99th percentile of latency.
const QUANTITIES: usize = 5;

/// The result of the runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alarms {
    /// Epochs of a run.
    pub(crate) epochs: usize,
    /// Share of runs with a false verdict, judged as one family.
    pub(crate) together: f64,
    /// The same where each quantity is a family of its own.
    pub(crate) each: f64,
}

/// Runs of `probes` probes against none, to the first look. The values of a case in an epoch scatter by 1 %, and
/// correlate with each other over quantities.
pub(crate) fn false_verdicts(probes: usize, correlation: f64, runs: usize, seed: u64) -> Alarms {
    let policy = Policy {
        margin: 0.0,
        budget: None,
        sense: Sense::Cost,
    };
    let epochs = looks::first_look(probes * QUANTITIES);
    let mut dice = Dice::new(seed);
    let alarm = |verdict: Verdict| matches!(verdict, Verdict::Slower | Verdict::Faster);
    let (mut together, mut each) = (0usize, 0usize);
    for _ in 0..runs {
        // Quantity, case, epoch.
        let mut values = vec![vec![Vec::with_capacity(epochs); probes + 1]; QUANTITIES];
        for _ in 0..epochs {
            for case in 0..=probes {
                let shared = dice.normal();
                for quantity in &mut values {
                    let own = dice.normal() * (1.0 - correlation).sqrt();
                    let scatter = shared * correlation.sqrt() + own;
                    quantity[case].push((0.01 * scatter).exp());
                }
            }
        }
        let quantities: Vec<Quantity> = values
            .iter()
            .map(|cases| Quantity {
                comparisons: cases[1..]
                    .iter()
                    .map(|case| Differences::pair(case, &cases[0]))
                    .collect(),
                policy,
            })
            .collect();
        let judged = judge_quantities(&quantities);
        together += usize::from(judged.iter().flatten().any(|one| alarm(one.verdict)));
        each += usize::from(quantities.iter().any(|one| {
            let judged = judge(&one.comparisons, &policy);
            judged.iter().any(|one| alarm(one.verdict))
        }));
    }
    let share = |count: usize| count as f64 / runs as f64;
    Alarms {
        epochs,
        together: share(together),
        each: share(each),
    }
}

/// The factors by which one family needs more than a family for each quantity: for the detectable effect after 20 and
/// after 60 epochs, and for the epochs that find an effect of 1 % where epochs scatter by 2 %.
pub(crate) fn costs(probes: usize) -> [f64; 3] {
    let ratio =
        |of: &dyn Fn(usize) -> Option<f64>| of(probes * QUANTITIES).unwrap() / of(probes).unwrap();
    let epochs = |k| power::epochs_for_spread(0.02, 0.01, k).map(|epochs| epochs as f64);
    [
        ratio(&|k| power::detectable_for_spread(0.02, 20, k)),
        ratio(&|k| power::detectable_for_spread(0.02, 60, k)),
        ratio(&epochs),
    ]
}
