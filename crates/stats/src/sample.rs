//! A sample of values and its plain description: quantiles, spread, outliers.
//!
//! These describe, they do not infer: nothing here yields an interval. Outliers are counted and kept.
//! Quantiles are type 7 of Hyndman & Fan (1996), "Sample quantiles in statistical packages"; outliers
//! are beyond Tukey's fences (Tukey 1977, "Exploratory Data Analysis"), 1.5 interquartile ranges
//! outside the quartiles.

use crate::pairwise::sorted;

/// Trials of a case in an epoch, where nothing else fixes them. Odd: the median of an even number is a mean of two,
/// which slow trials move, and so it estimates another centre. Five would narrow a difference by a tenth where
/// trials scatter far more than loads, and widen it by a fifth where loads do (docs/evidence/intervals.md).
pub const TRIALS: usize = 3;

/// The distance from a quartile beyond which a value is an outlier, in interquartile ranges.
pub const OUTLIER_FENCE: f64 = 1.5;

/// Finite values in ascending order, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// The finite ones of `values`; `None` when there is none.
    #[must_use]
    pub fn new(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    /// The values in ascending order, such as an ECDF plots them.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.sorted
    }

    /// Number of values; never 0.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted[self.len() - 1]
    }

    /// The value below which a share `p` lies, interpolated (type 7); `p` is clamped to 0..=1, and NaN
    /// asks for the median.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let p = if p.is_nan() { 0.5 } else { p.clamp(0.0, 1.0) };
        let position = p * (self.len() - 1) as f64;
        let below = position.floor() as usize;
        let above = (below + 1).min(self.len() - 1);
        let share = position - below as f64;
        let (low, high) = (self.sorted[below], self.sorted[above]);
        if low == high {
            low
        } else {
            low * (1.0 - share) + high * share
        }
    }

    /// The middle value.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The arithmetic mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let n = self.len() as f64;
        self.sorted
            .iter()
            .map(|v| v / n)
            .sum::<f64>()
            .clamp(self.min(), self.max())
    }

    /// The standard deviation (n − 1 in the denominator), in the unit of the values; `None` for one value.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        if self.len() < 2 {
            return None;
        }
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|v| (v - mean).powi(2)).sum();
        Some((squares / (self.len() - 1) as f64).sqrt())
    }

    /// The coefficient of variation: standard deviation over mean, 0.01 being 1 %. `None` for one value
    /// and for a mean of zero.
    #[must_use]
    pub fn cv(&self) -> Option<f64> {
        let cv = self.stddev()? / self.mean().abs();
        cv.is_finite().then_some(cv)
    }

    /// Values beyond Tukey's fences. They are kept in everything else. Below 4 values there is no
    /// telling, and none is counted.
    #[must_use]
    pub fn outliers(&self) -> usize {
        if self.len() < 4 {
            return 0;
        }
        let (q1, q3) = (self.quantile(0.25), self.quantile(0.75));
        let reach = OUTLIER_FENCE * (q3 - q1);
        self.sorted
            .iter()
            .filter(|&&v| v < q1 - reach || v > q3 + reach)
            .count()
    }
}

/// The median of the finite values; `None` when there is none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    Some(Sample::new(values)?.median())
}

/// Reduces each epoch of a case to the median of its trials. The result keeps the epochs' places: an
/// epoch without a finite trial yields NaN, which everything in this crate passes over.
#[must_use]
pub fn epoch_medians<E: AsRef<[f64]>>(epochs: &[E]) -> Vec<f64> {
    epochs
        .iter()
        .map(|trials| median(trials.as_ref()).unwrap_or(f64::NAN))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values).unwrap()
    }

    #[test]
    fn description_of_a_small_sample() {
        let s = sample(&[3.0, 1.0, f64::NAN, 2.0, 10.0, 4.0]);
        assert_eq!((s.len(), s.min(), s.max(), s.median()), (5, 1.0, 10.0, 3.0));
        assert_eq!(s.mean(), 4.0);
        assert_eq!(s.quantile(0.25), 2.0);
        assert!((s.quantile(0.9) - 7.6).abs() < 1e-12);
        assert!((s.stddev().unwrap() - 12.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(s.outliers(), 1);
    }

    #[test]
    fn one_value_and_constant_values() {
        let one = sample(&[2.0]);
        assert_eq!((one.stddev(), one.cv()), (None, None));
        let constant = sample(&[2.0; 9]);
        assert_eq!((constant.stddev(), constant.outliers()), (Some(0.0), 0));
        assert!(Sample::new(&[f64::NAN, f64::INFINITY]).is_none());
    }

    #[test]
    fn epochs_keep_their_places() {
        let epochs = [vec![3.0, 1.0, 2.0], vec![], vec![4.0, f64::NAN]];
        let medians = epoch_medians(&epochs);
        assert_eq!(medians[0], 2.0);
        assert!(medians[1].is_nan());
        assert_eq!(medians[2], 4.0);
    }
}
