//! The spread of trials by its sources: between epochs (what a load fixes, and time), between the trials of one epoch,
//! and in the sentinel, which stays loaded and so shows time only.
//!
//! Components are relative standard deviations, 0.01 being 1 %. They are estimated on logs from the
//! median distance between two values of a kind, over 0.9539 the standard deviation of a normal
//! distribution (Shamos 1976; 86 % efficient, unmoved by less than 29 % outliers). What trials
//! contribute to the median of an epoch is subtracted from the spread between epochs, as the analysis of
//! variance does.

use crate::pairwise::median_distance;
use crate::sample::{epoch_medians, median};

/// The median distance between two draws of a standard normal distribution: √2 · 0.67449.
const NORMAL_MEDIAN_DISTANCE: f64 = 0.953_872_552_416_832_6;

/// Spread of one case, or the typical one of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Relative standard deviation of what an epoch's trials share; 0.01 is 1 %.
    pub epoch: f64,
    /// Relative standard deviation of trials within an epoch.
    pub trial: f64,
}

impl Spread {
    /// Estimates the spread of one case from all trials by epoch. Values that are not above zero are skipped. `None`
    /// below two epochs, or without any epoch of two trials.
    #[must_use]
    pub fn from_epochs<E: AsRef<[f64]>>(epochs: &[E]) -> Option<Self> {
        let logs: Vec<Vec<f64>> = epochs.iter().map(|trials| ln(trials.as_ref())).collect();

        let mut distances = Vec::new();
        for trials in &logs {
            for (i, a) in trials.iter().enumerate() {
                distances.extend(trials[i + 1..].iter().map(|b| (a - b).abs()));
            }
        }
        let trial = median(&distances)? / NORMAL_MEDIAN_DISTANCE;

        let total = median_distance(&epoch_medians(&logs))? / NORMAL_MEDIAN_DISTANCE;
        let sizes: Vec<f64> = logs
            .iter()
            .filter(|t| !t.is_empty())
            .map(|t| t.len() as f64)
            .collect();
        let share = variance_of_median(median(&sizes)?.round() as usize);
        let epoch = (total.powi(2) - share * trial.powi(2)).max(0.0).sqrt();
        Some(Self { epoch, trial })
    }

    /// The standard deviation of one epoch's log ratio between two cases with this spread and `trials`
    /// trials each: what [`crate::power::detectable_for_spread`] plans from.
    #[must_use]
    pub fn of_difference(&self, trials: usize) -> f64 {
        let one = self.epoch.powi(2) + variance_of_median(trials) * self.trial.powi(2);
        (2.0 * one).sqrt()
    }

    /// The typical spread over cases: the median of each component. `None` for no case.
    #[must_use]
    pub fn typical(cases: &[Self]) -> Option<Self> {
        let over =
            |component: fn(&Self) -> f64| median(&cases.iter().map(component).collect::<Vec<_>>());
        Some(Self {
            epoch: over(|s| s.epoch)?,
            trial: over(|s| s.trial)?,
        })
    }
}

/// The drift of the machine: the relative standard deviation between epochs of a program that stayed loaded, from its
/// trials by epoch. `None` below two epochs.
///
/// Compared with [`Spread::epoch`] of the cases, it separates time from load: what is left of theirs
/// when the squares are subtracted came with loading afresh.
#[must_use]
pub fn sentinel_drift<E: AsRef<[f64]>>(epochs: &[E]) -> Option<f64> {
    match Spread::from_epochs(epochs) {
        Some(spread) => Some(spread.epoch),
        None => relative_sd(&epoch_medians(epochs)), // one trial an epoch: nothing to subtract
    }
}

/// The robust relative standard deviation of values above zero; `None` below two of them.
#[must_use]
pub fn relative_sd(values: &[f64]) -> Option<f64> {
    Some(median_distance(&ln(values))? / NORMAL_MEDIAN_DISTANCE)
}

pub(crate) fn ln(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .filter(|v| v.is_finite() && **v > 0.0)
        .map(|v| v.ln())
        .collect()
}

/// Variance of the median of `n` draws from a standard normal distribution (Teichroew 1956).
pub(crate) fn variance_of_median(n: usize) -> f64 {
    const TABLE: [f64; 11] = [
        1.0, 1.0, 0.5, 0.4487, 0.2982, 0.2868, 0.2147, 0.2104, 0.1682, 0.1661, 0.1383,
    ];
    TABLE
        .get(n)
        .copied()
        .unwrap_or(std::f64::consts::FRAC_PI_2 / n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_to_tell() {
        assert_eq!(Spread::from_epochs::<Vec<f64>>(&[]), None);
        assert_eq!(Spread::from_epochs(&[vec![1.0, 2.0]]), None);
        assert_eq!(Spread::from_epochs(&[vec![1.0], vec![2.0]]), None);
        assert_eq!(
            Spread::from_epochs(&[vec![f64::NAN, -1.0], vec![0.0, 2.0]]),
            None
        );
        assert!(sentinel_drift(&[vec![1.0], vec![2.0]]).is_some());
        assert_eq!(Spread::typical(&[]), None);
    }

    #[test]
    fn identical_epochs_have_no_spread_between() {
        let spread = Spread::from_epochs(&[[1.0, 1.01, 0.99]; 12]).unwrap();
        assert_eq!(spread.epoch, 0.0);
        assert!(spread.trial > 0.005);
    }
}
