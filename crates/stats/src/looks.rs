//! When a run may look at its intervals, and when it may stop.
//!
//! A verdict can only fall if the exact test can reach the level that Holm asks of the smallest of K
//! p-values. With n epochs the smallest two-sided p-value is 2¹⁻ⁿ, so 2¹⁻ⁿ ≤ 0.04 / K needs
//! n ≥ log₂(50 K); one more epoch lets it happen with one discordant epoch left. Looks are spaced
//! geometrically so that there are few, and a look decides only whether the intervals of the raw
//! values are narrow enough, never on a verdict: the level that remains to be paid for is small.

use crate::estimate::Estimate;

/// Fewest epochs of any first look.
pub const MIN_EPOCHS: usize = 10;

/// Each look comes at this multiple of the epochs of the one before.
pub const LOOK_GROWTH: f64 = 1.4;

/// Epochs at the first look of a run with `comparisons` comparisons: max(10, ⌈log₂(50 K)⌉ + 1).
#[must_use]
pub fn first_look(comparisons: usize) -> usize {
    let k = comparisons.max(1) as f64;
    MIN_EPOCHS.max((50.0 * k).log2().ceil() as usize + 1)
}

/// Epochs at the look after one at `epochs`.
#[must_use]
pub fn next_look(epochs: usize) -> usize {
    ((epochs as f64 * LOOK_GROWTH).ceil() as usize).max(epochs.saturating_add(1))
}

/// The epochs of all looks of a run with `comparisons` comparisons, without end.
pub fn looks(comparisons: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(first_look(comparisons)), |&n| Some(next_look(n)))
}

/// Returns whether a raw value is known well enough to stop: its half-width is at most `relative` of the value (0.01 is
/// 1 %) or at most `absolute`, in the unit of the value.
#[must_use]
pub fn precise_enough(raw: &Estimate, relative: f64, absolute: f64) -> bool {
    raw.half_width() <= (relative * raw.value.abs()).max(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::signed_rank_p;

    #[test]
    fn a_rejection_is_possible_at_the_first_look() {
        for comparisons in [0, 1, 2, 5, 10, 11, 23, 24, 100, 1000, 1_000_000] {
            let n = first_look(comparisons);
            let level = 0.04 / comparisons.max(1) as f64;
            let mut clear: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            assert!(signed_rank_p(&clear) <= level, "{comparisons}");
            clear[0] = -clear[0]; // one discordant epoch, the smallest
            assert!(signed_rank_p(&clear) <= level, "{comparisons}");
        }
        assert_eq!(first_look(1), 10);
        assert_eq!(first_look(24), 12);
    }

    #[test]
    fn looks_grow() {
        assert_eq!(looks(1).take(5).collect::<Vec<_>>(), [10, 14, 20, 28, 40]);
        assert_eq!(next_look(0), 1);
        assert_eq!(next_look(1), 2);
        assert_eq!(next_look(usize::MAX), usize::MAX);
        assert!(first_look(usize::MAX) < 100);
    }

    #[test]
    fn precision_is_relative_with_an_absolute_floor() {
        let raw = Estimate {
            value: 5.0,
            low: 4.92,
            high: 5.08,
        };
        assert!(!precise_enough(&raw, 0.01, 0.0));
        assert!(precise_enough(&raw, 0.02, 0.0));
        assert!(precise_enough(&raw, 0.01, 0.1));
        assert!(!precise_enough(&raw, f64::NAN, 0.0));
    }
}
