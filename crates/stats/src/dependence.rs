//! Dependence between values that follow each other: does the next one resemble the last?
//!
//! The rank version of von Neumann's ratio (Bartels, R. (1982), "The rank version of von Neumann's ratio test for
//! randomness", JASA 77): the squared differences of neighbours' ranks, over the squared distances of all ranks from their
//! mean. In random order its mean is exactly 2, whatever the values' distribution; it is less where neighbours resemble
//! each other. A series of ten values says little, so many are averaged, by group: series of one group may depend on each
//! other, groups may not.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::sample::Sample;

/// The ratio's mean in random order.
const RANDOM: f64 = 2.0;
/// The shortest series that has a ratio worth averaging.
const SHORTEST: usize = 4;

/// The ratio of a series, its values that are not finite left out; `None` if it is too short, or has one value alone.
#[must_use]
pub fn neighbour_ratio(values: &[f64]) -> Option<f64> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.len() < SHORTEST {
        return None;
    }
    // Equal values share their ranks' mean.
    let rank = |value: &f64| {
        let below = finite.iter().filter(|other| *other < value).count();
        let alike = finite.iter().filter(|other| *other == value).count();
        below as f64 + (alike as f64 - 1.0) / 2.0
    };
    let ranks: Vec<f64> = finite.iter().map(rank).collect();
    let middle = (finite.len() as f64 - 1.0) / 2.0;
    let all: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    let steps = ranks.windows(2).map(|two| (two[1] - two[0]).powi(2));
    let ratio = steps.sum::<f64>() / all;
    ratio.is_finite().then_some(ratio)
}

/// The probability that neighbours resemble each other as much by chance, from the mean ratios of independent groups of
/// series: a one-sided t-test. `None` with fewer than two groups, or if all are alike.
#[must_use]
pub fn resemblance_p(ratios: &[f64]) -> Option<f64> {
    let sample = Sample::new(ratios)?;
    let n = sample.len() as f64;
    let error = sample.stddev()? / n.sqrt();
    let student = StudentsT::new(0.0, 1.0, n - 1.0).ok()?;
    let t = (sample.mean() - RANDOM) / error;
    t.is_finite().then(|| student.cdf(t))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean over all orders of ten values, by steps of one permutation of neighbours at a time (Heap's algorithm).
    fn mean_over_orders(values: &mut Vec<f64>, length: usize, sum: &mut (f64, f64)) {
        if length == 1 {
            sum.0 += neighbour_ratio(values).unwrap();
            sum.1 += 1.0;
            return;
        }
        for at in 0..length {
            mean_over_orders(values, length - 1, sum);
            let other = if length.is_multiple_of(2) { at } else { 0 };
            values.swap(other, length - 1);
        }
    }

    #[test]
    fn in_random_order_the_mean_is_two() {
        for mut values in [
            vec![1.0, 2.0, 3.0, 1e9, -4.0, 0.5, 7.0],
            // Ties.
            vec![1.0, 1.0, 3.0, 3.0, 3.0, 0.5],
        ] {
            let mut sum = (0.0, 0.0);
            let length = values.len();
            mean_over_orders(&mut values, length, &mut sum);
            assert!((sum.0 / sum.1 - 2.0).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn order_decides() {
        let rising: Vec<f64> = (0..10).map(f64::from).collect();
        assert!(neighbour_ratio(&rising).unwrap() < 0.2);
        let turning: Vec<f64> = (0..10).map(|n| f64::from(n % 2 * 100 + n)).collect();
        assert!(neighbour_ratio(&turning).unwrap() > 2.2);
        assert_eq!(neighbour_ratio(&[1.0, 2.0, f64::NAN, 3.0]), None);
        assert_eq!(neighbour_ratio(&[1.0; 9]), None);
    }

    #[test]
    fn resemblance_is_judged_on_one_side() {
        let p = |ratios: &[f64]| resemblance_p(ratios).unwrap();
        assert!(p(&[1.0, 1.1, 1.2, 1.3]) < 0.003);
        assert!(p(&[3.0, 3.1, 3.2, 3.3]) > 0.99);
        assert!((p(&[1.9, 2.1]) - 0.5).abs() < 1e-9);
        assert_eq!(resemblance_p(&[1.0]), None);
        assert_eq!(resemblance_p(&[1.0, 1.0]), None);
    }
}
