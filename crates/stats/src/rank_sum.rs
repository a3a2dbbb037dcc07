//! The null distribution of the Mann–Whitney statistic U for two samples.
//!
//! Exact, by counting the ways to choose which ranks the smaller sample holds, up to [`EXACT_PAIRS`] pairs
//! of values; the normal approximation with continuity correction beyond.
//!
//! Mann, H. B. & Whitney, D. R. (1947), Annals of Mathematical Statistics 18(1).

use crate::normal;

/// Largest product of the sizes for which the distribution is computed exactly: 20 sessions a side.
pub(crate) const EXACT_PAIRS: usize = 400;

/// P(U ≤ c) for samples of `m` and `n` from one distribution.
pub(crate) fn lower_tail(m: usize, n: usize, c: u64) -> f64 {
    if m.saturating_mul(n) > EXACT_PAIRS {
        let (mean, sd) = moments(m, n);
        return normal::cdf((c as f64 + 0.5 - mean) / sd).clamp(f64::MIN_POSITIVE, 1.0);
    }
    let table = cumulative(m, n);
    usize::try_from(c)
        .ok()
        .and_then(|c| table.get(c).copied())
        .unwrap_or(1.0)
}

/// The largest c with P(U ≤ c) ≤ `tail`; `None` when even c = 0 is more likely than that.
pub(crate) fn critical(m: usize, n: usize, tail: f64) -> Option<u64> {
    if m == 0 || n == 0 || tail.is_nan() {
        return None;
    }
    if m.saturating_mul(n) > EXACT_PAIRS {
        let (mean, sd) = moments(m, n);
        let c = (mean - 0.5 + normal::quantile(tail) * sd).floor();
        return (c >= 0.0).then_some(c as u64);
    }
    (cumulative(m, n).partition_point(|&p| p <= tail) as u64).checked_sub(1)
}

fn moments(m: usize, n: usize) -> (f64, f64) {
    let (m, n) = (m as f64, n as f64);
    (m * n / 2.0, (m * n * (m + n + 1.0) / 12.0).sqrt())
}

/// P(U ≤ c) for every c from 0 to m·n.
fn cumulative(m: usize, n: usize) -> Vec<f64> {
    let (m, n) = (m.min(n), m.max(n));
    // ways[j][u]: choices of j ranks so far whose sum exceeds the least possible, j(j+1)/2, by u.
    let mut ways = vec![vec![0.0_f64; m * n + 1]; m + 1];
    ways[0][0] = 1.0;
    for rank in 1..=m + n {
        for chosen in (1..=m.min(rank)).rev() {
            let excess = rank - chosen;
            for u in excess..=m * n {
                ways[chosen][u] += ways[chosen - 1][u - excess];
            }
        }
    }
    let total: f64 = ways[m].iter().sum();
    let mut sum = 0.0;
    ways[m]
        .iter()
        .map(|count| {
            sum += count;
            sum / total
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-sided 5 % critical values of the published table of U.
    #[test]
    fn critical_values_of_the_published_table() {
        for (m, n, c) in [
            (4, 4, 0),
            (3, 5, 0),
            (5, 5, 2),
            (4, 6, 2),
            (6, 6, 5),
            (5, 8, 6),
            (8, 8, 13),
            (10, 10, 23),
            (8, 15, 29),
            (20, 20, 127),
        ] {
            assert_eq!(critical(m, n, 0.025), Some(c), "{m}, {n}");
            assert_eq!(critical(n, m, 0.025), Some(c), "{n}, {m}");
        }
        assert_eq!(critical(3, 4, 0.025), None);
        assert_eq!(critical(3, 3, 0.025), None);
    }

    #[test]
    fn tail_by_counting() {
        assert_eq!(lower_tail(4, 4, 0), 1.0 / 70.0);
        assert_eq!(lower_tail(4, 4, 2), 4.0 / 70.0);
        assert!((lower_tail(4, 4, 16) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_approximation_continues_the_exact_table() {
        let exact = critical(20, 20, 0.025).unwrap();
        let (mean, sd) = moments(20, 20);
        let near = mean - 0.5 + normal::quantile(0.025) * sd;
        assert!((near - exact as f64).abs() < 1.5);
    }
}
