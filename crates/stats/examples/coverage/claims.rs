//! The claims of docs/evidence/ as experiments: each function simulates one and returns how often it held.

use crate::noise::{Dice, Noise, NoisyMachine};
use bpfcost_stats::sample::epoch_medians;
use bpfcost_stats::{
    Budget, Differences, Estimate, Policy, Sense, Spread, Verdict, hodges_lehmann, judge, looks,
    modes, power,
};

/// Trials a case gets in an epoch.
pub(crate) const TRIALS: usize = 3;

/// Epoch medians by case, and the machine's level by epoch.
struct SimulatedRun {
    cases: Vec<Vec<f64>>,
    pooled: Vec<f64>,
    levels: Vec<f64>,
}

impl SimulatedRun {
    fn new(cases: usize) -> Self {
        Self {
            cases: vec![Vec::new(); cases],
            pooled: Vec::new(),
            levels: Vec::new(),
        }
    }

    fn extend(&mut self, machine: &mut NoisyMachine, levels: &[f64], epochs: usize) {
        while self.levels.len() < epochs {
            let epoch = machine.epoch(levels, TRIALS);
            for (case, median) in self.cases.iter_mut().zip(epoch_medians(&epoch.trials)) {
                case.push(median);
            }
            self.pooled.extend(&epoch.trials[0]);
            self.levels.push(epoch.level);
        }
    }

    fn simulate(noise: Noise, seed: u64, levels: &[f64], epochs: usize) -> Self {
        let mut run = Self::new(levels.len());
        run.extend(&mut NoisyMachine::new(noise, seed), levels, epochs);
        run
    }

    /// Every case but the first against the first.
    fn differences(&self) -> Vec<Differences> {
        self.cases[1..]
            .iter()
            .map(|case| Differences::pair(case, &self.cases[0]))
            .collect()
    }
}

/// The shares of intervals that hold the truth.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Coverage {
    /// A case's own value.
    pub(crate) own: f64,
    /// The same, had its interval been asked for at 95 % like that of a difference.
    pub(crate) own95: f64,
    /// The relative difference of two cases.
    pub(crate) difference: f64,
    /// A case's own value, had its trials been pooled as if they were independent.
    pub(crate) pooled: f64,
}

/// Coverage of 95 % intervals at `epochs` epochs, over `runs` runs of 4 cases.
///
/// The truth of a difference is the true ratio. The truth of a case's own value is the centre of its
/// epoch medians over this run, had every epoch been drawn again without end: the median of averages of
/// two draws, given how the machine's level moved during this run. An interval from one run cannot know
/// more; the session spread says where the level would be in another run.
pub(crate) fn coverage(noise: Noise, epochs: usize, runs: usize, seed: u64) -> Coverage {
    const LEVELS: [f64; 4] = [1.0, 1.03, 0.98, 1.0];
    let bank = Bank::new(noise, LEVELS.len(), seed);
    let mut counts = [0usize; 4];
    for run in 0..runs {
        let run = SimulatedRun::simulate(noise, seeded(seed, run), &LEVELS, epochs);
        let centre = bank.centre(noise, &run.levels);
        for (case, level) in run.cases.iter().zip(LEVELS) {
            counts[0] += usize::from(holds(Estimate::for_case(case), centre * level));
            counts[3] += usize::from(holds(Estimate::for_difference(case), centre * level));
        }
        for (pair, level) in run.differences().iter().zip(&LEVELS[1..]) {
            counts[1] += usize::from(holds(Estimate::for_difference(&pair.log_ratio), level.ln()));
        }
        counts[2] += usize::from(holds(Estimate::for_difference(&run.pooled), centre));
    }
    let share = |count: usize, per_run: usize| count as f64 / (runs * per_run) as f64;
    Coverage {
        own: share(counts[0], LEVELS.len()),
        own95: share(counts[3], LEVELS.len()),
        difference: share(counts[1], LEVELS.len() - 1),
        pooled: share(counts[2], 1),
    }
}

pub(crate) fn holds(estimate: Option<Estimate>, truth: f64) -> bool {
    estimate.is_some_and(|e| e.interval().contains(truth))
}

/// The distribution of epoch medians apart from the machine's level: quantiles of many.
pub(crate) struct Bank {
    quantiles: Vec<f64>,
    centre: f64,
}

impl Bank {
    pub(crate) fn new(noise: Noise, cases: usize, seed: u64) -> Self {
        // Of what moves, take the still version; the levels of each run are put back in `centre`.
        let still = if noise.moves() { Noise::Normal } else { noise };
        let mut run = SimulatedRun::new(cases);
        let mut machine = NoisyMachine::new(still, seed ^ 0x5eed);
        run.extend(&mut machine, &vec![1.0; cases], 40_000 / cases);
        let mut all: Vec<f64> = run.cases.concat();
        all.sort_unstable_by(f64::total_cmp);
        let quantiles = (0..100)
            .map(|i| all[(2 * i + 1) * all.len() / 200])
            .collect();
        Self {
            quantiles,
            centre: hodges_lehmann(&all).unwrap(),
        }
    }

    pub(crate) fn centre(&self, noise: Noise, levels: &[f64]) -> f64 {
        if !noise.moves() {
            return self.centre;
        }
        let values: Vec<f64> = levels
            .iter()
            .flat_map(|l| self.quantiles.iter().map(move |q| l * q))
            .collect();
        hodges_lehmann(&values).unwrap()
    }
}

/// False alarms of the whole procedure on runs in which nothing differs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Alarms {
    /// Share of runs with at least one `slower` or `faster`.
    pub(crate) family_wise: f64,
    /// The same had `same` not taken precedence (margin 0).
    pub(crate) without_same: f64,
    /// Mean epochs of a run.
    pub(crate) epochs: f64,
}

/// A/A runs with `comparisons` comparisons: looks as scheduled, stopping once every raw interval is
/// within 1 %, or else when time is up, which is anywhere between the first look and 60 epochs.
pub(crate) fn false_alarms(noise: Noise, comparisons: usize, runs: usize, seed: u64) -> Alarms {
    let levels = vec![50.0; comparisons + 1];
    let policy = |margin| Policy {
        margin,
        budget: None,
        sense: Sense::Cost,
    };
    let alarm = |pairs: &[Differences], margin: f64| {
        judge(pairs, &policy(margin))
            .iter()
            .any(|c| matches!(c.verdict, Verdict::Slower | Verdict::Faster))
    };
    let (mut alarms, mut without_same, mut epochs) = (0usize, 0usize, 0usize);
    for i in 0..runs {
        let first = looks::first_look(comparisons);
        let time = first + (Dice::new(seeded(!seed, i)).uniform() * (61 - first) as f64) as usize;
        let mut machine = NoisyMachine::new(noise, seeded(seed, i));
        let mut run = SimulatedRun::new(levels.len());
        for look in looks::looks(comparisons) {
            run.extend(&mut machine, &levels, look.min(time));
            let precise = |case: &Vec<f64>| {
                Estimate::for_case(case).is_some_and(|e| looks::precise_enough(&e, 0.01, 0.1))
            };
            if look >= time || run.cases.iter().all(precise) {
                break;
            }
        }
        epochs += run.levels.len();
        let pairs = run.differences();
        // Precedence of `same` only ever takes alarms away.
        if alarm(&pairs, 0.0) {
            without_same += 1;
            alarms += usize::from(alarm(&pairs, 0.01));
        }
    }
    let share = |count: usize| count as f64 / runs as f64;
    Alarms {
        family_wise: share(alarms),
        without_same: share(without_same),
        epochs: share(epochs),
    }
}

/// The share of separate runs that find an effect as large as another run with the same noise called `detectable`. One
/// case has the effect, the others none.
pub(crate) fn found_at_detectable(
    noise: Noise,
    comparisons: usize,
    epochs: usize,
    runs: usize,
    seed: u64,
) -> f64 {
    let flat = vec![1.0; comparisons + 1];
    let policy = Policy {
        margin: 0.0,
        budget: None,
        sense: Sense::Cost,
    };
    let mut found = 0usize;
    for i in 0..runs {
        let pairs = SimulatedRun::simulate(noise, seeded(seed, 2 * i), &flat, epochs).differences();
        let effect = power::detectable(&pairs[0].log_ratio, comparisons).unwrap();
        let mut levels = flat.clone();
        levels[1] = effect.exp();
        let pairs =
            SimulatedRun::simulate(noise, seeded(seed, 2 * i + 1), &levels, epochs).differences();
        found += usize::from(judge(&pairs, &policy)[0].verdict == Verdict::Slower);
    }
    found as f64 / runs as f64
}

/// The share of runs that find an effect as large as the plan for normal noise (loads 1 %, trials 2 %) called
/// detectable before any epoch was measured.
pub(crate) fn found_as_planned(comparisons: usize, epochs: usize, runs: usize, seed: u64) -> f64 {
    let spread = Spread {
        epoch: 0.01,
        trial: 0.02,
    }
    .of_difference(TRIALS);
    let effect = power::detectable_for_spread(spread, epochs, comparisons).unwrap();
    let policy = Policy {
        margin: 0.0,
        budget: None,
        sense: Sense::Cost,
    };
    let mut levels = vec![1.0; comparisons + 1];
    levels[1] = effect.exp();
    let found = (0..runs).filter(|&i| {
        let run = SimulatedRun::simulate(Noise::Normal, seeded(seed, i), &levels, epochs);
        judge(&run.differences(), &policy)[0].verdict == Verdict::Slower
    });
    found.count() as f64 / runs as f64
}

/// The share of runs that find an effect of 2 % after the epochs that a run of `pilot` epochs projected, and the mean
/// number of those epochs.
pub(crate) fn found_when_resolved(
    noise: Noise,
    comparisons: usize,
    pilot: usize,
    runs: usize,
    seed: u64,
) -> (f64, f64) {
    let effect: f64 = 0.02;
    let flat = vec![1.0; comparisons + 1];
    let policy = Policy {
        margin: 0.0,
        budget: None,
        sense: Sense::Cost,
    };
    let (mut found, mut total) = (0usize, 0usize);
    for i in 0..runs {
        let pairs = SimulatedRun::simulate(noise, seeded(seed, 2 * i), &flat, pilot).differences();
        let epochs =
            power::epochs_to_resolve(&pairs[0].log_ratio, effect.ln_1p(), comparisons).unwrap();
        let mut levels = flat.clone();
        levels[1] = 1.0 + effect;
        let pairs =
            SimulatedRun::simulate(noise, seeded(seed, 2 * i + 1), &levels, epochs).differences();
        found += usize::from(judge(&pairs, &policy)[0].verdict == Verdict::Slower);
        total += epochs;
    }
    (found as f64 / runs as f64, total as f64 / runs as f64)
}

/// The share of runs of one comparison that err where the true cost lies exactly on the margin and on the budget, both
/// 2 %: of `same`, of `within`, and of `over`.
pub(crate) fn on_the_edge(noise: Noise, epochs: usize, runs: usize, seed: u64) -> [f64; 3] {
    let policy = Policy {
        margin: 0.02,
        budget: Some(0.02),
        sense: Sense::Cost,
    };
    let mut counts = [0usize; 3];
    for i in 0..runs {
        let run = SimulatedRun::simulate(noise, seeded(seed, i), &[50.0, 51.0], epochs);
        let judged = judge(&run.differences(), &policy)[0];
        counts[0] += usize::from(matches!(judged.verdict, Verdict::Same { .. }));
        counts[1] += usize::from(judged.budget == Some(Budget::Within));
        counts[2] += usize::from(judged.budget == Some(Budget::Over));
    }
    counts.map(|count| count as f64 / runs as f64)
}

/// The distribution of epoch medians in which two modes are searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MedianDistribution {
    Normal,
    /// With this σ of the logarithm.
    LogNormal(f64),
    /// Student's t with 5 degrees of freedom: more outliers than normal.
    Heavy,
    /// Spread evenly over this share of the value.
    Even(f64),
    /// Drifting by 4 % in all, with 0.5 % of normal noise.
    Drift,
    /// Half of the values at 1 % of noise, the others delayed by up to 8 %, evenly.
    HalfDelayed,
    /// A delay of 3 % on average, distributed exponentially.
    Exponential,
    /// Two normals this many σ apart, with this share in the upper.
    Two(f64, f64),
}

/// The share of runs that see two modes among `epochs` values of a shape with a spread of 1 %.
pub(crate) fn two_modes_seen(
    shape: MedianDistribution,
    epochs: usize,
    runs: usize,
    seed: u64,
) -> f64 {
    let mut dice = Dice::new(seed);
    let draw = |dice: &mut Dice, passed: f64| match shape {
        MedianDistribution::Normal => 50.0 * (1.0 + 0.01 * dice.normal()),
        MedianDistribution::LogNormal(sigma) => 50.0 * (sigma * dice.normal()).exp(),
        MedianDistribution::Heavy => {
            let chi: f64 = (0..5).map(|_| dice.normal().powi(2)).sum();
            50.0 * (1.0 + 0.01 * dice.normal() / (chi / 5.0).sqrt())
        }
        MedianDistribution::Even(width) => 50.0 * (1.0 + width * dice.uniform()),
        MedianDistribution::Drift => 50.0 * (1.0 + 0.04 * passed + 0.005 * dice.normal()),
        MedianDistribution::HalfDelayed => {
            let delay = (dice.uniform() - 0.5).max(0.0) * 0.16;
            50.0 * (1.0 + delay + 0.01 * dice.normal())
        }
        MedianDistribution::Exponential => 50.0 * (1.0 - 0.03 * (1.0 - dice.uniform()).ln()),
        MedianDistribution::Two(distance, share) => {
            let upper = f64::from(u8::from(dice.uniform() < share));
            50.0 * (1.0 + 0.01 * (dice.normal() + upper * distance))
        }
    };
    let seen = (0..runs)
        .filter(|_| {
            let values: Vec<f64> = (0..epochs)
                .map(|epoch| draw(&mut dice, epoch as f64 / epochs as f64))
                .collect();
            modes::two_modes(&values).is_some()
        })
        .count();
    seen as f64 / runs as f64
}

/// A seed for each run that shares nothing with its neighbours' (Steele et al. 2014, SplitMix64).
pub(crate) fn seeded(seed: u64, run: usize) -> u64 {
    let mut z = seed.wrapping_add((run as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
