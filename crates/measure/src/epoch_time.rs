//! The seconds of an epoch, estimated from earlier epochs to plan the next ones.

use crate::Measurements;

/// The time of an epoch, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EpochTime {
    /// All but the rounds: load, preparation, warm-up, unload.
    pub load_s: f64,
    /// One round of every case.
    pub round_s: f64,
}

impl EpochTime {
    /// The mean over the whole epochs among the first `epochs`; the first of them counts only where it
    /// is the only one, since it has calibrated too. `None` without a whole epoch.
    pub fn from_measurements(measured: &Measurements, epochs: usize) -> Option<Self> {
        let whole: Vec<usize> = measured.whole().take_while(|&e| e < epochs).collect();
        let counted = match whole.as_slice() {
            [] => return None,
            [only] => std::slice::from_ref(only),
            [_, rest @ ..] => rest,
        };
        let sum = |seconds: fn(&Measurements, usize) -> f64| -> f64 {
            counted.iter().map(|&epoch| seconds(measured, epoch)).sum()
        };
        let rounds_s = sum(|measured, epoch| measured.rounds_s[epoch]);
        Some(EpochTime {
            load_s: (sum(|measured, epoch| measured.epoch_s[epoch]) - rounds_s)
                / counted.len() as f64,
            round_s: rounds_s / sum(|measured, epoch| measured.rounds(epoch) as f64).max(1.0),
        })
    }

    /// An epoch of this many rounds.
    pub fn epoch_s(&self, rounds: u32) -> f64 {
        self.load_s + f64::from(rounds) * self.round_s
    }
}
