//! Two modes among the epochs of one case.
//!
//! Some cases settle, load by load, into one of two states (a map lands well or badly in the cache). One
//! number between the two describes neither, so both are shown with their shares.
//!
//! Decided on the logs of the epoch medians, cut into a lower and an upper group. Any cut leaves less
//! variance within the groups than there was (Otsu 1979), of a normal distribution too: 36 % after a cut at
//! the median, more after an uneven one. So each cut is scored by how much less it leaves than the same cut
//! of a normal distribution would, and the best score is held against what normal samples of that size reach
//! by chance.
//!
//! Two groups are not two modes: values that are spread evenly, as by slow drift, score higher than normal ones. Two
//! modes have a dip between them (Hartigan & Hartigan 1985, "The dip test of unimodality", Annals of Statistics
//! 13(1)): either one that even values rarely have, or a slight one and a score that even values rarely reach.

use crate::normal;
use crate::pairwise::sorted;
use crate::sample::median;

/// Fewest epochs in which two modes can be distinguished.
pub const MIN_EPOCHS: usize = 10;

/// The smallest share of the epochs that is called a mode rather than outliers.
pub const MIN_SHARE: f64 = 0.12;

/// The smallest relative distance of two modes that is worth telling; 0.002 is 0.2 %.
pub const MIN_DISTANCE: f64 = 0.002;

/// A dip, times the root of the number of epochs, that one evenly spread sample in 100 to 200 exceeds.
const CLEAR_DIP: f64 = 0.56;

/// The same that evenly spread samples exceed more often: alone it shows nothing, so the split must be a rare one too.
const SLIGHT_DIP: f64 = 0.42;

/// One of two modes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mode {
    /// The median of its epochs, in the unit of the values.
    pub value: f64,
    /// The share of the epochs in this mode, 0 to 1.
    pub share: f64,
}

/// The two modes of a case's epoch medians, the lower first; `None` where one describes it. Values that
/// are not above zero are passed over.
#[must_use]
pub fn two_modes(epochs: &[f64]) -> Option<[Mode; 2]> {
    let values: Vec<f64> = sorted(epochs).into_iter().filter(|&v| v > 0.0).collect();
    let n = values.len();
    if n < MIN_EPOCHS {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    let (split, gain) = best_split(&logs);
    if split.min(n - split) < 2 || gain <= bound(n) {
        return None;
    }
    let dip = dip(&logs) * (n as f64).sqrt();
    if dip <= SLIGHT_DIP || (dip <= CLEAR_DIP && gain <= even_bound(n)) {
        return None;
    }
    let mode = |part: &[f64]| {
        Some(Mode {
            value: median(part)?,
            share: part.len() as f64 / n as f64,
        })
    };
    let [low, high] = [mode(&values[..split])?, mode(&values[split..])?];
    (high.value / low.value >= 1.0 + MIN_DISTANCE).then_some([low, high])
}

/// The best cut of ascending values, and the factor by which it leaves less variance within its parts than the same cut
/// leaves of a normal distribution: 1 for normal values, large for two groups.
fn best_split(values: &[f64]) -> (usize, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let total: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let mut best = (1, 0.0);
    if total <= 0.0 {
        return best;
    }
    let mut sum = 0.0;
    for (i, value) in values.iter().enumerate().take(values.len() - 1) {
        sum += value - mean;
        let share = (i + 1) as f64 / n;
        if share.min(1.0 - share) < MIN_SHARE {
            continue;
        }
        let left = 1.0 - sum.powi(2) / (n * share * (1.0 - share) * total);
        let gain = normal_left(share) / left.max(1e-9);
        if gain > best.1 {
            best = (i + 1, gain);
        }
    }
    best
}

/// The share of a normal distribution's variance that is left within its parts when it is cut at the
/// quantile `share`: 0.36 at a half.
fn normal_left(share: f64) -> f64 {
    let z = normal::quantile(share);
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    1.0 - density.powi(2) / (share * (1.0 - share))
}

/// The gain that about one normal sample in 80 of `n` exceeds: a fit, within 4 % from 10 to 2,000, to
/// the quantiles of 20,000 simulated samples of each size.
fn bound(n: usize) -> f64 {
    let n = n as f64;
    1.0 + 2.8 / n.sqrt() + 5.0 / n + 180.0 / (n * n)
}

/// The gain that about one evenly spread sample in 80 of `n` exceeds: a fit, within 6 % from 10 to 1,200, to the quantiles of 20,000 simulated samples of each size.
fn even_bound(n: usize) -> f64 {
    let n = n as f64;
    1.45 + 3.3 / n.sqrt() + 14.0 / n + 240.0 / (n * n)
}

/// The distance of ascending values from one mode: half the largest distance between their distribution function and
/// the nearest one that is convex up to some value and concave from there on, so 1/2n at least.
///
/// Hartigan & Hartigan's dip, but that the two halves may overlap where they meet.
fn dip(values: &[f64]) -> f64 {
    let mirrored: Vec<f64> = values.iter().rev().map(|v| -v).collect();
    let n = values.len();
    // Up to value number `mode` convex, from there on concave: the one rises with `mode`, the other falls.
    let sides = |mode: usize| {
        let convex = beyond_convex(&values[..=mode], n);
        let concave = beyond_convex(&mirrored[..n - mode], n);
        (convex, concave)
    };
    let (mut low, mut high) = (0, n - 1);
    while low < high {
        let mode = low.midpoint(high);
        let (convex, concave) = sides(mode);
        if convex >= concave {
            high = mode;
        } else {
            low = mode + 1;
        }
    }
    let worst = |mode: usize| {
        let (convex, concave) = sides(mode);
        convex.max(concave)
    };
    worst(low).min(worst(low.saturating_sub(1))) / 2.0
}

/// The largest distance by which the distribution function of the first of `n` ascending values rises above the largest
/// convex function below it.
fn beyond_convex(values: &[f64], n: usize) -> f64 {
    let before = |i: usize| i as f64 / n as f64; // just below the value
    let slope = |from: usize, to: usize| (before(to) - before(from)) / (values[to] - values[from]);
    let mut hull: Vec<usize> = Vec::with_capacity(values.len());
    for to in 0..values.len() {
        if hull.last().is_some_and(|&last| values[last] == values[to]) {
            continue;
        }
        while let [.., a, b] = hull[..]
            && slope(a, b) >= slope(b, to)
        {
            hull.pop();
        }
        hull.push(to);
    }
    let mut farthest: f64 = 0.0;
    let mut side = 0;
    for i in 0..values.len() {
        while side + 2 < hull.len() && values[hull[side + 1]] <= values[i] {
            side += 1;
        }
        let under = match hull[side..] {
            [a, b, ..] => before(a) + slope(a, b) * (values[i] - values[a]),
            _ => before(hull[side]),
        };
        farthest = farthest.max(before(i + 1) - under);
    }
    farthest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups_are_two_modes() {
        let epochs = [
            26.1, 31.0, 26.0, 26.2, 31.2, 26.1, 26.0, 31.1, 26.2, 26.1, 26.0, 30.9,
        ];
        let [low, high] = two_modes(&epochs).unwrap();
        assert!((low.value - 26.1).abs() < 0.01 && (high.value - 31.05).abs() < 0.01);
        assert!(
            (low.share - 8.0 / 12.0).abs() < 1e-12 && (low.share + high.share - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn the_dip_of_known_samples() {
        // Two points far apart: half of the values at each, so that a step of a half remains, a quarter on either side.
        let apart: Vec<f64> = (0..20)
            .map(|i| f64::from(i / 10) + 1e-6 * f64::from(i))
            .collect();
        assert!((dip(&apart) - 0.25).abs() < 0.03, "{}", dip(&apart));
        // Even steps: as close to one mode as so many values can be.
        let even: Vec<f64> = (0..20).map(f64::from).collect();
        assert!((dip(&even) - 0.025).abs() < 1e-9, "{}", dip(&even));
        assert!(dip(&[5.0; 20]) <= 0.5 && dip(&[1.0]) <= 0.5);
    }

    #[test]
    fn what_is_not_two_modes() {
        let line: Vec<f64> = (0..30).map(|i| 50.0 + f64::from(i)).collect();
        assert_eq!(two_modes(&line), None);
        assert_eq!(two_modes(&[5.0; 40]), None);
        assert_eq!(two_modes(&[1.0, 2.0, 1.0, 2.0]), None, "too few");
        let mut outlier = vec![50.0; 20];
        outlier[3] = 80.0;
        assert_eq!(two_modes(&outlier), None, "one epoch is no mode");
        let near: Vec<f64> = (0..30).map(|i| 50.0 + 0.05 * f64::from(i % 2)).collect();
        assert_eq!(two_modes(&near), None, "0.1 % is not worth telling");
        assert_eq!(two_modes(&[f64::NAN, -1.0, 0.0, f64::INFINITY]), None);
    }
}
