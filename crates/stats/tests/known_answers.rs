//! Worked examples of the literature.

use bpfcost_stats::Differences;
use bpfcost_stats::session_spread::{SessionSpread, SessionSpreads};
use bpfcost_stats::sessions::{Session, SessionComparison, Sides, judge_sessions, shift, shift_p};
use bpfcost_stats::verdict::{Budget, judge};
use bpfcost_stats::{
    Estimate, Policy, Sense, Verdict, hodges_lehmann, signed_rank_interval, signed_rank_p,
};

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

/// Sessions of a side in turn, an hour apart, which know their own value.
fn sessions_of(values: &[f64], is_new: bool) -> Vec<Session> {
    let one = |(index, &value): (usize, &f64)| Session {
        began_s: 3600.0 * (2 * index + usize::from(is_new)) as f64,
        estimate: Estimate {
            value,
            low: value * (1.0 - 1e-9),
            high: value * (1.0 + 1e-9),
        },
    };
    values.iter().enumerate().map(one).collect()
}

/// Sessions of which no spread may be assumed are judged by the spread that they show themselves.
#[test]
fn an_unknown_spread_is_that_of_the_sessions() {
    let policy = Policy {
        margin: 0.03,
        budget: None,
        sense: Sense::Cost,
    };
    let judged = |old: &[f64], new: &[f64], leverage: f64| -> SessionComparison {
        let assumed = SessionSpread::assumed(0.01);
        let sides = Sides {
            spreads: SessionSpreads {
                within: assumed,
                between: assumed,
            },
            unassumed: true,
            leverage,
            ..Sides::new(sessions_of(old, false), sessions_of(new, true))
        };
        judge_sessions(&[sides], 1, &policy)[0]
    };
    // One a side says nothing, however far they are apart, nor do two of one side.
    for (old, new) in [(&[50.0][..], &[90.0][..]), (&[50.0, 50.5], &[90.0])] {
        let alone = judged(old, new, 1.0);
        assert_eq!((alone.relative, alone.p), (None, 1.0));
        assert!(matches!(alone.verdict, Verdict::Unresolved { .. }));
    }
    // Two a side, each 2 % apart in logs: s = 1.414 %, so is the error of the difference, times t(2) = 4.303.
    let two = [50.0, 50.0 * 0.02f64.exp()];
    let high = |comparison: SessionComparison| comparison.relative.unwrap().high.ln_1p();
    assert!((high(judged(&two, &two, 1.0)) - 0.060_85).abs() < 1e-4);
    // A value that scatters twice as much: 0.71 % of a level is below the 1 % that is assumed, which counts.
    assert!((high(judged(&two, &two, 2.0)) - 0.086_05).abs() < 1e-4);
    assert_eq!(judged(&two, &two, 1.0).p, 1.0);
    // Three a side: t(4) = 2.776, and the error by √(2/3).
    let three = [50.0, 50.0 * 0.02f64.exp(), 50.0];
    let s = (0.02f64.powi(2) * (2.0 / 3.0) / 2.0).sqrt();
    let expected = 2.776 * s * (2.0f64 / 3.0).sqrt();
    assert!((high(judged(&three, &three, 1.0)) - expected).abs() < 1e-4);
}

/// A cost over a budget also differs at all, by Holm over all comparisons of the run; the verdict may still be the
/// same.
#[test]
fn over_a_budget_is_beyond_noise() {
    let pair = |case: &[f64]| Differences::pair(case, &[100.0; 10]);
    let costs_more: Vec<f64> = (0..10).map(|i| 106.0 + 0.1 * f64::from(i)).collect();
    let policy = |margin, budget| Policy {
        margin,
        budget: Some(budget),
        sense: Sense::Cost,
    };
    let judged = |comparisons: usize, policy: Policy| {
        let nothing = pair(&[
            99.0, 101.0, 98.0, 102.0, 97.0, 103.0, 99.5, 100.5, 96.0, 104.0,
        ]);
        let mut all = vec![nothing; comparisons];
        all[0] = pair(&costs_more);
        judge(&all, &policy)[0]
    };
    // p = 2/1024: below 0.04 alone, above 0.04/30.
    assert_eq!(judged(1, policy(0.01, 0.05)).budget, Some(Budget::Over));
    let among_many = judged(30, policy(0.01, 0.05));
    assert!(among_many.relative90.unwrap().low > 0.05);
    assert_eq!(among_many.budget, Some(Budget::CantTell));
    // Within the margin of the same, and over a budget that is smaller.
    let same = judged(1, policy(0.10, 0.05));
    assert!(matches!(same.verdict, Verdict::Same { .. }));
    assert_eq!(same.budget, Some(Budget::Over));
}
