//! Named kinds of noise: what a machine does to a run, drawn from a seed.
//!
//! A run is a sequence of trials in time: epoch by epoch, round by round, the cases of a round in an
//! order drawn afresh. What a trial reads is its case's level, times what the load did to this case in
//! this epoch, times what the machine does at this moment to everyone, times the trial's own noise.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A kind of noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Loads 1 %, trials 2 %, both normal.
    Normal,
    /// Only ever slower: loads and trials add a log-normal delay (σ = 0.7) of about 1 % and 2 %.
    LogNormal,
    /// As normal, and 3 loads in 10 end up 8 % slower.
    TwoMode,
    /// As normal, and the machine gets slower or faster by up to 0.5 % an epoch throughout the run.
    Drift,
    /// As normal, and once in 8 epochs the machine's level jumps by 4 % (standard deviation) and stays.
    Step,
    /// As normal, and one trial in 10 falls into a burst of some 6 trials that are 5 to 40 % slower.
    Burst,
}

impl Noise {
    pub(crate) const ALL: [Self; 6] = [
        Self::Normal,
        Self::LogNormal,
        Self::TwoMode,
        Self::Drift,
        Self::Step,
        Self::Burst,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LogNormal => "log-normal",
            Self::TwoMode => "two-mode",
            Self::Drift => "drifting",
            Self::Step => "stepping",
            Self::Burst => "bursty",
        }
    }

    /// Returns whether the machine's level moves through the run, so that epochs are not alike.
    pub(crate) fn moves(self) -> bool {
        matches!(self, Self::Drift | Self::Step)
    }
}

/// A source of normal and uniform draws.
pub(crate) struct Dice(Pcg64Mcg);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Standard normal (Box & Muller 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    pub(crate) fn shuffle(&mut self, order: &mut [usize]) {
        for i in (1..order.len()).rev() {
            order.swap(i, self.0.random_range(0..=i));
        }
    }
}

/// A run under way.
pub(crate) struct NoisyMachine {
    noise: Noise,
    dice: Dice,
    /// The current level of the machine, a factor of every cost.
    level: f64,
    /// Change of the level an epoch, when drifting.
    slope: f64,
    /// Slowdown of the burst under way; 0 between bursts.
    burst: f64,
}

/// One epoch as the engine would hand it on.
pub(crate) struct SimulatedEpoch {
    /// All trials, by case.
    pub(crate) trials: Vec<Vec<f64>>,
    /// The machine's level in the middle of the epoch: the part of the values that moves with time.
    pub(crate) level: f64,
}

impl NoisyMachine {
    pub(crate) fn new(noise: Noise, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let slope = if noise == Noise::Drift {
            0.01 * (dice.uniform() - 0.5)
        } else {
            0.0
        };
        Self {
            noise,
            dice,
            level: 1.0,
            slope,
            burst: 0.0,
        }
    }

    /// Measures cases of these true `levels`, `trials` times each.
    pub(crate) fn epoch(&mut self, levels: &[f64], trials: usize) -> SimulatedEpoch {
        let loads: Vec<f64> = levels.iter().map(|level| level * self.load()).collect();
        let mut values = vec![Vec::with_capacity(trials); levels.len()];
        let mut order: Vec<usize> = (0..levels.len()).collect();
        let length = (levels.len() * trials) as f64;
        let mut middle = self.level;
        for round in 0..trials {
            self.dice.shuffle(&mut order);
            for (slot, &case) in order.iter().enumerate() {
                self.tick(length);
                let value = loads[case] * self.level * (1.0 + self.burst) * self.trial();
                values[case].push(value);
                if 2 * (round * levels.len() + slot) <= levels.len() * trials {
                    middle = self.level;
                }
            }
        }
        SimulatedEpoch {
            trials: values,
            level: middle,
        }
    }

    /// Returns the factor that a load fixes for one case and epoch.
    fn load(&mut self) -> f64 {
        match self.noise {
            Noise::LogNormal => 1.0 + 0.01 * (0.7 * self.dice.normal()).exp(),
            Noise::TwoMode => {
                let mode = if self.dice.uniform() < 0.3 { 1.08 } else { 1.0 };
                mode * (1.0 + 0.01 * self.dice.normal())
            }
            _ => 1.0 + 0.01 * self.dice.normal(),
        }
    }

    /// The noise that one trial adds.
    fn trial(&mut self) -> f64 {
        match self.noise {
            Noise::LogNormal => 1.0 + 0.02 * (0.7 * self.dice.normal()).exp(),
            _ => 1.0 + 0.02 * self.dice.normal(),
        }
    }

    /// Moves time on by one trial, of `length` in an epoch.
    fn tick(&mut self, length: f64) {
        match self.noise {
            Noise::Drift => self.level += self.slope / length,
            Noise::Step => {
                let jumps = self.dice.uniform() < 1.0 / (8.0 * length);
                let jump = if jumps {
                    self.dice.normal().clamp(-3.0, 3.0)
                } else {
                    0.0
                };
                self.level *= 1.0 + 0.04 * jump;
            }
            Noise::Burst => {
                let turn = self.dice.uniform();
                if self.burst > 0.0 && turn < 1.0 / 6.0 {
                    self.burst = 0.0;
                } else if self.burst == 0.0 && turn < 1.0 / 54.0 {
                    self.burst = 0.05 + 0.35 * self.dice.uniform();
                }
            }
            _ => {}
        }
    }
}
