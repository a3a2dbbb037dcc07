//! The distribution of trials as text: round bins from the first percentile to the 99th. The rest is counted at the
//! ends and does not stretch the axis.

use crate::table::{Cell, Head, Table};
use bpfcost_text::number;

/// Columns of the longest bar.
const BAR: usize = 40;
/// About as many bins as a screen shows at once.
const BINS: f64 = 16.0;

/// The value at `share` of sorted `values`, between neighbours where it falls between.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let low = sorted.get(place.floor() as usize)?;
    let high = sorted.get((place.ceil() as usize).min(last))?;
    Some(low + (high - low) * place.fract())
}

/// Finite values of all epochs, sorted.
pub(crate) fn sorted(samples: &[Vec<f64>]) -> Vec<f64> {
    let values = samples.iter().flatten().copied();
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The bins of `sorted` values, bars to scale; `None` where there are none.
pub(crate) fn table(sorted: &[f64]) -> Option<Table> {
    let (low, high) = (percentile(sorted, 0.01)?, percentile(sorted, 0.99)?);
    // Never so small that edges fall together.
    let least = (low.abs().max(high.abs()) * 1e-9).max(1e-9);
    let step = number::round_step(((high - low) / BINS).max(least));
    let first = (low / step).floor();
    let last = ((high / step).floor() - first).clamp(0.0, 4.0 * BINS);
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    let edge = |bin: usize| number::fixed((first + bin as f64) * step, decimals);
    let mut bins: Vec<(String, usize)> = vec![("<p1".to_owned(), 0)];
    bins.extend((0..=last as usize).map(|bin| (edge(bin), 0)));
    bins.push((">p99".to_owned(), 0));
    for &value in sorted {
        let place = ((value / step).floor() - first).clamp(0.0, last) as usize + 1;
        let place = match value {
            value if value < low => 0,
            value if value > high => bins.len() - 1,
            _ => place,
        };
        bins[place].1 += 1;
    }
    let most = bins.iter().map(|bin| bin.1).max().unwrap_or(1).max(1);
    // One trial is never nothing.
    let bar = |bin: &(String, usize)| Cell::words("█".repeat((bin.1 * BAR).div_ceil(most)));
    let columns = vec![
        Head::number(format!("bins of {}", number::fixed(step, decimals)))
            .cells(|bin: &(String, usize)| Cell::words(&bin.0)),
        Head::number("").cells(|bin: &(String, usize)| Cell::words(bin.1.to_string())),
        Head::words("").cells(bar),
    ];
    Some(Table::new(columns, &bins))
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
            let table = table(&values).expect("there are values");
            let counts = table.rows.iter().map(|row| row[1].text.parse::<usize>());
            let counted: usize = counts.map(|count| count.expect("a number")).sum();
            assert_eq!(counted, values.len());
            assert!(table.rows.len() <= 70);
            assert!(!format!("{table:?}").contains("NaN"));
        }
        assert_eq!(table(&[]), None);
        assert_eq!(table(&sorted(&[vec![f64::NAN]])), None);
    }
}
