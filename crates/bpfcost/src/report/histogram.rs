//! A histogram in text: round bins from the first percentile to the 99th, with the rest counted
//! at the ends instead of stretching the axis.

use crate::report::{
    block::{Block, Cell, Head},
    number,
};

/// Columns of the longest bar.
const BAR: usize = 40;
/// About as many bins as a screen shows at once.
const BINS: f64 = 16.0;

/// Trials in bins.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Trials below the first percentile.
    pub below: usize,
    /// Lower edge and number of trials of each bin.
    pub bins: Vec<(f64, usize)>,
    /// Trials above the 99th percentile.
    pub above: usize,
    /// Width of a bin.
    pub step: f64,
}

/// The value at `share` of sorted `values`, between neighbours where it falls between.
pub fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let low = sorted.get(place.floor() as usize)?;
    let high = sorted.get((place.ceil() as usize).min(last))?;
    Some(low + (high - low) * place.fract())
}

/// Finite values of all epochs, sorted.
pub fn sorted(samples: &[Vec<f64>]) -> Vec<f64> {
    let mut values: Vec<f64> = samples
        .iter()
        .flatten()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

impl Histogram {
    /// Bins of `sorted` values; `None` where there are none.
    pub fn new(sorted: &[f64]) -> Option<Self> {
        let (low, high) = (percentile(sorted, 0.01)?, percentile(sorted, 0.99)?);
        let step = round_step((high - low) / BINS, low.abs().max(high.abs()));
        let first = (low / step).floor();
        let count = ((high / step).floor() - first).clamp(0.0, 4.0 * BINS) as usize + 1;
        let mut bins: Vec<(f64, usize)> = (0..count)
            .map(|index| ((first + index as f64) * step, 0))
            .collect();
        let (mut below, mut above) = (0, 0);
        for &value in sorted {
            if value < low {
                below += 1;
            } else if value > high {
                above += 1;
            } else {
                let place = (value / step).floor() - first;
                let place = (place.max(0.0) as usize).min(count - 1);
                if let Some((_, number)) = bins.get_mut(place) {
                    *number += 1;
                }
            }
        }
        while bins.len() > 1 && bins.last().is_some_and(|(_, number)| *number == 0) {
            bins.pop();
        }
        Some(Histogram {
            below,
            bins,
            above,
            step,
        })
    }

    /// Decimals at which neighbouring edges differ.
    fn decimals(&self) -> usize {
        (-self.step.log10().floor()).clamp(0.0, 6.0) as usize
    }

    /// The width of a bin, as text.
    pub fn step_text(&self) -> String {
        number::fixed(self.step, self.decimals())
    }

    /// The bins as a table, bars to scale.
    pub fn block(&self) -> Block {
        let most = self.bins.iter().map(|bin| bin.1).max().unwrap_or(1).max(1);
        let decimals = self.decimals();
        let bins = self.bins.iter().map(|(edge, number)| {
            // One trial is never nothing.
            let bar = "█".repeat((number * BAR).div_ceil(most));
            (number::fixed(*edge, decimals), *number, bar)
        });
        let end = |name: &str, number: usize| {
            (number > 0).then(|| (name.to_owned(), number, String::new()))
        };
        let below = end("<p1", self.below).into_iter();
        let rows: Vec<(String, usize, String)> =
            below.chain(bins).chain(end(">p99", self.above)).collect();
        type Bin = (String, usize, String);
        let columns = vec![
            Head::number("").of(|bin: &Bin| Cell::words(&bin.0)),
            Head::number("").of(|bin: &Bin| Cell::words(bin.1.to_string())),
            Head::words("").of(|bin: &Bin| Cell::words(&bin.2)),
        ];
        Block::of(columns, &rows)
    }
}

/// The next of 1, 2, 5 times a power of ten; never so small that edges fall together.
fn round_step(step: f64, size: f64) -> f64 {
    let least = (size * 1e-9).max(1e-9);
    let step = if step.is_finite() {
        step.max(least)
    } else {
        least
    };
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|round| *round >= step * (1.0 - 1e-9))
        .unwrap_or(step)
}

/// How much farther the 99th percentile lies above the median than the first lies below it; over
/// 1 is a tail to the right. `None` where nothing can be said.
pub fn skew(sorted: &[f64]) -> Option<f64> {
    let (low, middle, high) = (
        percentile(sorted, 0.01)?,
        percentile(sorted, 0.5)?,
        percentile(sorted, 0.99)?,
    );
    let skew = (high - middle) / (middle - low);
    (sorted.len() >= 10 && skew.is_finite() && skew > 0.0).then_some(skew)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted() {
        for values in [
            vec![1.0],
            vec![5.0; 100],
            (0..1_000)
                .map(|i| f64::from(i % 37) * 0.1 + 820.0)
                .collect(),
            vec![-1e300, 0.0, 1e300],
            vec![1e-300, 2e-300],
        ] {
            let values = sorted(&[values]);
            let histogram = Histogram::new(&values).expect("there are values");
            let inside: usize = histogram.bins.iter().map(|(_, number)| number).sum();
            assert_eq!(histogram.below + inside + histogram.above, values.len());
            assert!(histogram.bins.len() <= 70);
            assert!(!format!("{:?}", histogram.block()).contains("NaN"));
        }
        assert_eq!(Histogram::new(&[]), None);
        assert_eq!(Histogram::new(&sorted(&[vec![f64::NAN]])), None);
    }

    #[test]
    fn tails_are_told() {
        let values: Vec<f64> = (0..200)
            .map(|i| 100.0 + (f64::from(i) / 20.0).exp())
            .collect();
        assert!(skew(&values).is_some_and(|skew| skew > 3.0));
        assert_eq!(skew(&[1.0; 50]), None);
        assert_eq!(skew(&[]), None);
    }
}
