//! Worked examples of the literature.

use bpfcost_stats::sessions::{shift, shift_p};
use bpfcost_stats::{hodges_lehmann, signed_rank_interval, signed_rank_p};

/// Two visits of nine patients (Hollander & Wolfe, "Nonparametric Statistical Methods", section 3.1).
/// Published: T⁺ = 5, one-sided p = 0.0195, estimate −0.46, 96.1 % interval (−0.786, −0.010).
#[test]
#[allow(clippy::approx_constant)] // 3.14 was a patient's score
fn signed_rank_of_the_depression_scale() {
    let first = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
    let second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
    let change: Vec<f64> = second.iter().zip(first).map(|(b, a)| b - a).collect();

    assert!((signed_rank_p(&change) - 2.0 * 0.01953125).abs() < 1e-12);
    assert!((hodges_lehmann(&change).unwrap() + 0.46).abs() < 1e-9);
    let interval = signed_rank_interval(&change, 0.95).unwrap();
    assert!((interval.low + 0.786).abs() < 1e-9, "{interval:?}");
    assert!((interval.high + 0.010).abs() < 1e-9, "{interval:?}");
}

/// Ten against five measurements of permeability (the same book, section 4.1). Published: one-sided
/// p = 0.1272, estimate of the shift 0.305.
#[test]
fn rank_sum_of_the_permeability() {
    let term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    let earlier = [1.15, 0.88, 0.90, 0.74, 1.21];

    assert!((shift_p(&earlier, &term) - 2.0 * 0.1272).abs() < 1e-4);
    let estimate = shift(&earlier, &term, 0.95).unwrap();
    assert!((estimate.value - 0.305).abs() < 1e-9, "{estimate:?}");
    assert!(estimate.low < 0.0 && estimate.high > 0.0);
}

/// Ranks 1 to 10 with one negative sign at rank r: P(W ≤ r) counts the sets of distinct ranks that sum
/// to at most r (1, 2, 3, 5, 7, 10 for r = 0 to 5).
#[test]
fn signed_rank_by_counting_sets() {
    for (rank, sets) in [(0, 1), (1, 2), (2, 3), (3, 5), (4, 7), (5, 10)] {
        let values: Vec<f64> = (1..=10)
            .map(|i| {
                if i == rank {
                    -f64::from(i)
                } else {
                    f64::from(i)
                }
            })
            .collect();
        assert_eq!(
            signed_rank_p(&values),
            f64::from(2 * sets) / 1024.0,
            "{rank}"
        );
    }
}

/// Ties and zeros speak against an effect.
#[test]
fn ties_and_zeros_are_conservative() {
    assert_eq!(signed_rank_p(&[0.0; 20]), 1.0);
    assert_eq!(signed_rank_p(&[3.0; 10]), 2.0 / 1024.0); // equal signs: nothing is in doubt
    // One zero among ten: as if it were the smallest rank of the other sign, or none; never less.
    let with_zero: Vec<f64> = (0..10).map(f64::from).collect();
    assert_eq!(signed_rank_p(&with_zero), 4.0 / 1024.0);
    // Nine of +1 and one of −1: the interval reaches to 0, so the p-value is above 5 %.
    let mut tied = [1.0; 10];
    tied[0] = -1.0;
    assert!(signed_rank_interval(&tied, 0.95).unwrap().contains(0.0));
    assert!(signed_rank_p(&tied) > 0.05);
}

/// Sample sizes below which no interval exists.
#[test]
fn too_few_epochs_have_no_interval() {
    let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    assert!(signed_rank_interval(&values, 0.95).is_some());
    assert!(signed_rank_interval(&values[..5], 0.95).is_none());
    assert!(signed_rank_interval(&values[..5], 0.90).is_some());
    assert!(signed_rank_interval(&values, 1.0).is_none());
    assert!(signed_rank_interval(&values, f64::NAN).is_none());
    assert!(shift(&values[..4], &values[..4], 0.95).is_some());
    assert!(shift(&values[..3], &values[..4], 0.95).is_none());
}
