//! Holm's step-down procedure: rejects some of several hypotheses with a bounded chance of even one false rejection,
//! whatever the dependence among them (cases share their baseline).
//!
//! Holm, S. (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
//! Statistics 6(2).

/// Returns for each p-value, in the order given, whether Holm rejects it at family-wise level `alpha`.
///
/// A p-value that is NaN counts as 1: it is never rejected, yet still counts among the hypotheses.
#[must_use]
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<bool> {
    adjusted(p_values).into_iter().map(|p| p <= alpha).collect()
}

/// Holm's adjusted p-values, in the order given: the least `alpha` at which each would be rejected.
#[must_use]
pub fn adjusted(p_values: &[f64]) -> Vec<f64> {
    let clean = |i: usize| {
        if p_values[i].is_nan() {
            1.0
        } else {
            p_values[i].clamp(0.0, 1.0)
        }
    };
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| clean(a).total_cmp(&clean(b)));

    let mut adjusted = vec![1.0; p_values.len()];
    let mut highest: f64 = 0.0;
    for (step, &i) in order.iter().enumerate() {
        let left = (p_values.len() - step) as f64;
        highest = highest.max((left * clean(i)).min(1.0));
        adjusted[i] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worked textbook example: of 0.01, 0.04, 0.03, 0.005 at 5 % the first and the last fall.
    #[test]
    fn a_worked_example() {
        let p = [0.01, 0.04, 0.03, 0.005];
        assert_eq!(holm(&p, 0.05), [true, false, false, true]);
        for (got, expected) in adjusted(&p).iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn stops_at_the_first_that_holds() {
        // 0.03 would pass alone, but 0.02 > 0.05 / 3 stopped the procedure before it.
        assert_eq!(holm(&[0.02, 0.03, 0.04], 0.05), [false, false, false]);
        assert_eq!(holm(&[0.01, 0.02, 0.04], 0.05), [true, true, true]);
    }

    #[test]
    fn odd_input() {
        assert!(holm(&[], 0.05).is_empty());
        assert_eq!(holm(&[f64::NAN, 0.02], 0.05), [false, true]);
        assert_eq!(holm(&[f64::NAN, 0.026], 0.05), [false, false]);
        assert_eq!(
            holm(&[0.0, f64::NEG_INFINITY, f64::INFINITY], f64::NAN),
            [false; 3]
        );
    }
}
