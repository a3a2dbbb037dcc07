//! Counts: what repeats is found, whatever disturbs a few samples, and what doesn't is said not to.

use bpfcost_stats::{REPEATS, count};
use proptest::prelude::*;

#[test]
fn the_value_that_most_agree_on() {
    // As measured on Linux 6.12: a batch of 453, with a tick of some 3,300 instructions in the smaller
    // batch of two samples, and in the larger one of two others.
    let samples = [
        875.715, 875.717, 882.998, 883.0, 883.0, 883.002, 883.002, 883.002, 890.285, 890.287,
    ];
    let result = count(&samples, 453).unwrap();
    assert_eq!((result.value, result.repeats), (883.0, 6));
}

#[test]
fn a_low_value_that_repeats_is_not_the_count() {
    // A tick in the smaller batch, three times alike: the smallest value seen three times is wrong.
    let samples = [79.3402, 79.3403, 79.3403, 80.0, 80.0, 80.0, 80.0002];
    assert_eq!(count(&samples, 4971).unwrap().value, 80.0);
}

#[test]
fn work_that_varies_has_a_median() {
    let result = count(
        &[
            1712.0, 1716.0, 1716.0, 1716.0, 1720.0, 1720.0, 1722.0, 1718.0,
        ],
        128,
    )
    .unwrap();
    assert_eq!((result.value, result.repeats), (1717.0, 0));
    // Two samples that agree are too few.
    assert_eq!(count(&[5.0, 5.0], 1000).unwrap().repeats, 0);
    assert_eq!(count(&[f64::NAN], 10), None);
}

#[test]
fn a_mean_of_draws_need_not_be_whole() {
    let result = count(&[982.3945, 982.3906, 982.3945, 982.3945], 256).unwrap();
    assert!(
        (result.value - 982.3945).abs() < 1e-9 && result.repeats == 4,
        "{result:?}"
    );
}

proptest! {
    /// The clock reads whole instructions, up to one too few at each of four readings; fewer than half of
    /// the samples hold something that does not belong to them.
    #[test]
    fn what_the_clock_rounds_and_few_disturb_is_found(
        cost in 1..5000u64,
        ops in 1..(1u64 << 20),
        rounding in prop::collection::vec(-2..=2i64, 7..40),
        disturbed in prop::collection::vec(-100_000..100_000i64, 0..4),
    ) {
        let total = (cost * ops) as i64;
        let sample = |off: &i64| (total + off) as f64 / ops as f64;
        let samples: Vec<f64> = rounding.iter().chain(&disturbed).map(sample).collect();
        let result = count(&samples, ops).unwrap();
        prop_assert!(result.repeats >= REPEATS);
        if ops >= 8 {
            prop_assert_eq!(result.value, cost as f64);
        } else {
            prop_assert!((result.value - cost as f64).abs() <= 2.0 / ops as f64);
        }
    }
}
