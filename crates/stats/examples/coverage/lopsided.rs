//! Differences that are not symmetric: something strikes only the case. How often `same`, `within` and `over`
//! are said falsely then, and how often `same` is still said where it is true.

use crate::noise::Dice;
use bpfcost_stats::{
    Budget, Differences, Policy, Sense, Verdict, hodges_lehmann, judge, signed_rank_interval,
};

/// The distribution of an epoch's log ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    /// A standard deviation of 1 %.
    Normal,
    /// Student's t with 3 degrees of freedom.
    Heavy,
    /// This share of the epochs is dearer by this much, in the case alone.
    Dearer(f64, f64),
    /// The case has a delay of 2 % on average, distributed exponentially.
    Exponential,
    /// The case has a delay of 2 % in the median, log-normal with this σ.
    LogNormal(f64),
}

impl Shape {
    /// The log ratio of one epoch.
    fn draw(self, dice: &mut Dice) -> f64 {
        let noise = 0.01 * dice.normal();
        let one_sided = match self {
            Self::Normal => 0.0,
            Self::Heavy => {
                let chi: f64 = (0..3).map(|_| dice.normal().powi(2)).sum();
                return noise / (chi / 3.0).sqrt();
            }
            Self::Dearer(share, by) => f64::from(u8::from(dice.uniform() < share)) * by,
            Self::Exponential => -0.02 * (1.0 - dice.uniform()).ln(),
            Self::LogNormal(sigma) => 0.02 * (sigma * dice.normal()).exp(),
        };
        noise + one_sided
    }

    /// The centre that is estimated: the median of averages of two epochs.
    fn centre(self) -> f64 {
        let mut dice = Dice::new(0x5eed);
        let many: Vec<f64> = (0..400_000).map(|_| self.draw(&mut dice)).collect();
        hodges_lehmann(&many).unwrap()
    }
}

/// The share of each answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answers {
    pub(crate) same: f64,
    pub(crate) within: f64,
    pub(crate) over: f64,
    /// `within` by the interval that needs symmetry.
    pub(crate) symmetric: f64,
}

/// Runs of one comparison whose true cost is `share` of the margin and the budget, both 2 %.
pub(crate) fn answers(shape: Shape, share: f64, epochs: usize, runs: usize, seed: u64) -> Answers {
    let policy = Policy {
        margin: 0.02,
        budget: Some(0.02),
        sense: Sense::Cost,
    };
    let shift = share * policy.margin.ln_1p() - shape.centre();
    let mut dice = Dice::new(seed);
    let mut counts = [0usize; 4];
    for _ in 0..runs {
        let logs: Vec<f64> = (0..epochs).map(|_| shape.draw(&mut dice) + shift).collect();
        let symmetric = signed_rank_interval(&logs, 0.90);
        counts[3] += usize::from(symmetric.is_some_and(|i| i.high.exp_m1() <= 0.02));
        let pair = Differences {
            absolute: logs.clone(),
            log_ratio: logs,
            missing: 0,
            ..Differences::default()
        };
        let judged = judge(&[pair], &policy)[0];
        counts[0] += usize::from(matches!(judged.verdict, Verdict::Same { .. }));
        counts[1] += usize::from(judged.budget == Some(Budget::Within));
        counts[2] += usize::from(judged.budget == Some(Budget::Over));
    }
    let [same, within, over, symmetric] = counts.map(|count| count as f64 / runs as f64);
    Answers {
        same,
        within,
        over,
        symmetric,
    }
}
