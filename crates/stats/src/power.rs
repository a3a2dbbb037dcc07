//! The power of a run: the smallest effect that it would have found, and the length that finds a given effect.
//!
//! "Seen" means that the effect passes the strictest step of Holm's procedure, 0.04 / K, in about three
//! runs of four ([`POWER`]). From data: an effect δ is seen when the low end of the interval at
//! confidence 1 − 0.04 / K, moved up by δ, is above zero. That end lies below the truth by half the
//! interval, t standard errors, on average. It scatters with the estimate, and with the width: by t√(1/2n)
//! standard errors of normal data, twice: in the run at hand and in the one that is to see the effect. So
//! δ = half-width + z(0.75) · standard error · √(1 + t²/n). Before a run, from a spread alone, the same
//! with Student's quantile for t, the width's scatter counted once, and the test's efficiency 3/π.
//!
//! The exactness is that of the noise estimate: from 10 epochs δ itself is uncertain by a quarter.
//! Lehmann, E. L. (1975), "Nonparametrics", section 4.2, for the efficiency.

use crate::Sample;
use crate::differences::Differences;
use crate::estimate::{CONFIDENCE, signed_rank_interval};
use crate::looks::first_look;
use crate::normal;
use crate::sample::epoch_medians;
use crate::signed_rank;
use crate::spread::{ln, variance_of_median};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The family-wise level at which Holm tests. The remaining 0.01 up to 5 % pays for the looks.
pub const FALSE_ALARM_LEVEL: f64 = 0.04;

/// The share of runs in which an effect of the detectable size is found.
pub const POWER: f64 = 0.75;

/// The standard deviation of the signed-rank estimate is this multiple of the mean's, on normal data.
const RANK_INEFFICIENCY: f64 = 1.023_326_707_946_488_5; // √(π/3)

/// The smallest effect, as a difference in the unit of `differences` (log ratio, if they are logs),
/// that a run with these differences, one an epoch, would have found in about three runs of four while
/// making `comparisons` comparisons.
///
/// `None` where no effect of any size could have been found: too few epochs for the level.
#[must_use]
pub fn detectable(differences: &[f64], comparisons: usize) -> Option<f64> {
    let strictest = signed_rank_interval(differences, 1.0 - strictest_level(comparisons))?;
    let error = standard_error(differences)?;
    let n = differences.iter().filter(|d| d.is_finite()).count() as f64;
    let scatter = error.hypot(strictest.half_width() / n.sqrt());
    let effect = strictest.half_width() + normal::quantile(POWER) * scatter;
    effect.is_finite().then_some(effect)
}

/// Epochs, in all, after which a run like the one with these `differences` (one an epoch) would find an
/// effect of the size `effect`, in the same unit, in about three runs of four, while making
/// `comparisons` comparisons. Time is this times the time of an epoch.
///
/// `None` when the differences are too few to estimate their spread, or `effect` is not above zero.
#[must_use]
pub fn epochs_to_resolve(differences: &[f64], effect: f64, comparisons: usize) -> Option<usize> {
    let n = differences.iter().filter(|d| d.is_finite()).count();
    let spread = standard_error(differences)? * (n as f64).sqrt() / RANK_INEFFICIENCY;
    epochs_for_spread(spread, effect, comparisons)
}

/// The smallest effect that `epochs` epochs can show, planned from `spread`: the standard deviation of
/// one epoch's difference. `None` where the epochs are too few for any.
#[must_use]
pub fn detectable_for_spread(spread: f64, epochs: usize, comparisons: usize) -> Option<f64> {
    let level = strictest_level(comparisons);
    signed_rank::critical(epochs, level / 2.0)?;
    let half_width = student_quantile(1.0 - level / 2.0, epochs)?;
    let scatter = (1.0 + half_width.powi(2) / (2.0 * epochs as f64)).sqrt();
    let effect = (half_width + normal::quantile(POWER) * scatter) * RANK_INEFFICIENCY * spread
        / (epochs as f64).sqrt();
    (effect.is_finite() && effect >= 0.0).then_some(effect)
}

/// Epochs after which an effect of the size `effect` can be seen, planned from `spread`: the standard
/// deviation of one epoch's difference, in the same unit. At least the first look.
#[must_use]
pub fn epochs_for_spread(spread: f64, effect: f64, comparisons: usize) -> Option<usize> {
    if !(spread >= 0.0 && spread.is_finite() && effect > 0.0) {
        return None;
    }
    let level = strictest_level(comparisons);
    let quantiles = normal::quantile(1.0 - level / 2.0) + normal::quantile(POWER);
    let epochs = (quantiles * RANK_INEFFICIENCY * spread / effect).powi(2);
    if epochs > 1e15 {
        return None;
    }
    let first = first_look(comparisons);
    let mut epochs = (epochs.ceil() as usize).max(first);
    // Student's quantile exceeds the normal one while epochs are few.
    while epochs < 200
        && detectable_for_spread(spread, epochs, comparisons).is_none_or(|d| d > effect)
    {
        epochs += 1;
    }
    Some(epochs)
}

/// The standard deviation of one epoch's log ratio between two cases, from all trials of the first few epochs. The log
/// ratios of three epochs alone are often alike by chance, so the result is no lower than what the trials within epochs
/// leave in their medians. `None` below three epochs that have both.
#[must_use]
pub fn spread_of_first_epochs<E: AsRef<[f64]>>(case: &[E], baseline: &[E]) -> Option<f64> {
    let ratios = Differences::pair(&epoch_medians(case), &epoch_medians(baseline)).log_ratio;
    let between = Sample::new(&ratios)
        .filter(|ratios| ratios.len() >= 3)?
        .stddev()?;
    let within = variance_of_medians(case)? + variance_of_medians(baseline)?;
    Some(between.max(within.sqrt()))
}

/// The variance that the trials within epochs leave in the logs of their medians.
fn variance_of_medians<E: AsRef<[f64]>>(epochs: &[E]) -> Option<f64> {
    let (mut squares, mut freedom, mut trials) = (0.0, 0.0, 0.0);
    for epoch in epochs.iter().map(|epoch| ln(epoch.as_ref())) {
        let Some(epoch) = Sample::new(&epoch) else {
            continue;
        };
        trials += epoch.len() as f64;
        freedom += epoch.len() as f64 - 1.0;
        squares += epoch
            .values()
            .iter()
            .map(|log| (log - epoch.mean()).powi(2))
            .sum::<f64>();
    }
    if freedom < 1.0 {
        // One trial an epoch shows nothing of this.
        return Some(0.0);
    }
    let size = (trials / (trials - freedom)).round() as usize;
    Some(squares / freedom * variance_of_median(size))
}

/// Student's quantile for the mean of `epochs` epochs.
fn student_quantile(p: f64, epochs: usize) -> Option<f64> {
    /// From here on the normal one, which differs by less than 1e-5. With 10⁹ degrees of freedom statrs 0.19 does not end.
    const NORMAL: usize = 1_000_000;
    if epochs >= NORMAL {
        return Some(normal::quantile(p));
    }
    let student = StudentsT::new(0.0, 1.0, (epochs as f64 - 1.0).max(1.0)).ok()?;
    Some(student.inverse_cdf(p))
}

/// The level of the first, strictest step of Holm's procedure.
fn strictest_level(comparisons: usize) -> f64 {
    FALSE_ALARM_LEVEL / comparisons.max(1) as f64
}

/// The standard error of the Hodges–Lehmann estimate, read back from its 95 % interval.
fn standard_error(differences: &[f64]) -> Option<f64> {
    let half_width = signed_rank_interval(differences, CONFIDENCE)?.half_width();
    Some(half_width / normal::quantile(0.5 + CONFIDENCE / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_epochs_can_show_nothing() {
        assert_eq!(detectable(&[1.0; 9], 24), None);
        assert_eq!(detectable_for_spread(1.0, 9, 24), None);
        assert_eq!(detectable_for_spread(1.0, 0, 1), None);
        assert!(detectable_for_spread(1.0, 12, 24).is_some());
    }

    #[test]
    fn any_number_of_epochs_has_an_answer() {
        let shown = |epochs| detectable_for_spread(1.0, epochs, 24).unwrap();
        let (before, after) = (shown(999_999), shown(1_000_000));
        assert!((before / after - 1.0).abs() < 1e-5, "{before} {after}");
        assert!(shown(usize::MAX) > 0.0);
    }

    #[test]
    fn plans_agree_with_themselves() {
        for comparisons in [1, 5, 24] {
            for effect in [0.003, 0.01, 0.03] {
                let n = epochs_for_spread(0.02, effect, comparisons).unwrap();
                let shown = detectable_for_spread(0.02, n, comparisons).unwrap();
                assert!(
                    shown <= effect * 1.02,
                    "{comparisons} {effect}: {n} {shown}"
                );
            }
        }
    }

    #[test]
    fn the_first_epochs_show_a_spread() {
        let epochs = |values: [[f64; 3]; 3]| values.map(|epoch| epoch.to_vec());
        let flat = epochs([[100.0; 3]; 3]);
        // Medians that differ by 10 % from epoch to epoch.
        let apart = epochs([[90.0; 3], [100.0; 3], [110.0; 3]]);
        let spread = spread_of_first_epochs(&apart, &flat).unwrap();
        assert!((0.09..0.11).contains(&spread), "{spread}");
        // Medians that are alike, of trials that are not: 10 % leave 6.7 % in the median of three.
        let alike = epochs([[90.0, 100.0, 110.0]; 3]);
        let spread = spread_of_first_epochs(&alike, &flat).unwrap();
        assert!((0.06..0.075).contains(&spread), "{spread}");
        assert_eq!(spread_of_first_epochs(&flat, &flat), Some(0.0));
        assert_eq!(spread_of_first_epochs(&alike[..2], &flat[..2]), None);
        let single = [[90.0], [100.0], [110.0]];
        assert!(spread_of_first_epochs(&single, &[[100.0]; 3]).is_some());
        assert_eq!(
            spread_of_first_epochs(&[[0.0], [f64::NAN], [1.0]], &single),
            None
        );
    }

    #[test]
    fn odd_input() {
        assert_eq!(epochs_to_resolve(&[], 0.01, 1), None);
        assert_eq!(epochs_to_resolve(&[0.0; 20], 0.01, 1), Some(10));
        assert_eq!(epochs_to_resolve(&[0.0; 20], 0.0, 1), None);
        assert_eq!(epochs_for_spread(f64::NAN, 0.01, 1), None);
        assert_eq!(epochs_for_spread(1e300, 1e-300, usize::MAX), None);
    }
}
