//! An interval of the centre that needs no symmetry: for `Same` and budgets.
//!
//! The signed-rank interval trusts that differences are symmetric. Random order within rounds makes them so
//! where nothing differs, which is all that `Slower` and `Faster` need. `Same` and `Within` err where something
//! *does* differ, and then it may strike the case alone and in some epochs only: with three epochs of ten
//! dearer, by as much as one likes, the 90 % interval lies below its centre in 15 % of runs, not in 5.
//!
//! An end of the interval is the k-th of the averages of two epochs, and it errs when too few averages lie beyond
//! the centre. By how much that number scatters depends on the shape of the distribution: it is the number of
//! edges of a random graph in which two epochs are joined when their average lies beyond the centre. Half of
//! all pairs are joined, on average. Of such graphs the number scatters most where a group of epochs is joined
//! with each other and with no one else, or with everyone (Ahlswede and Katona 1978): where the epochs fall into
//! two humps far apart, and a share of 1 − √½ = 29 % in the far one. In this worst shape an average lies beyond
//! the centre unless both epochs are in the near hump, so k follows from the binomial distribution of the far
//! ones. In large samples that widens the interval by 11.5 %, for any distribution.
//!
//! In small samples the binomial takes large steps, and following it would widen all intervals by a third. So an
//! end is taken from it only where it makes a leap, that is, where there is a group far off; elsewhere the
//! interval is the signed-rank one, widened as for large samples.
//!
//! Below 10 epochs there is none: of 8, the worst shape shows no far epoch at all in √½⁸ = 6 % of runs.
//!
//! Ahlswede, R. & Katona, G. O. H. (1978), "Graphs with maximal number of adjacent pairs of edges", Acta
//! Mathematica Academiae Scientiarum Hungaricae 32. docs/evidence/comparisons.md has the simulations.

use crate::estimate::Interval;
use crate::pairwise::{Pairs as _, Walsh};
use crate::signed_rank;
use statrs::distribution::{Binomial, DiscreteCDF as _};

/// Fewest epochs that have an interval.
pub const MIN_EPOCHS: usize = 10;

/// The tail of the signed-rank distribution on either side: that of a normal one at 1.645 × 1.115, which is 0.033,
/// and a little less because samples are small. The interval's own tails are 0.05, whatever the shape.
const WIDENED_TAIL: f64 = 0.03;

/// The largest probability at which a far hump with so few epochs is ruled out: 0.05, and half a percent more, which
/// lets 14 epochs have one far.
const FAR_TAIL: f64 = 0.055;

/// The number of averages of a far and a near epoch that may lie below the centre, for each far epoch. Found by
/// simulation (far humps of 28 to 40 %, 10 to 100 epochs).
const BELOW_CENTRE: u64 = 4;

/// An end leaps if the worst shape puts it this much further from the estimate.
const LEAP: f64 = 1.5;

/// The 90 % interval of the centre over the finite values, whatever their distribution. `None` below
/// [`MIN_EPOCHS`] of them.
#[must_use]
pub fn interval_without_symmetry(values: &[f64]) -> Option<Interval> {
    let walsh = Walsh::new(values)?;
    let n = walsh.n();
    if n < MIN_EPOCHS {
        return None;
    }
    let widened = signed_rank::critical(n, WIDENED_TAIL)? + 1;
    let far = far(n)? as u64;
    // The end must not err with one far epoch more; then these averages are of two near ones.
    let near = n as u64 - far - 1;
    let worst = (walsh.pairs() - near * (near + 1) / 2).saturating_sub(BELOW_CENTRE * far);
    let worst = worst.clamp(1, widened);
    let centre = walsh.median();
    let end = |at: fn(u64, u64) -> u64| {
        let [widened, worst] = [widened, worst].map(|k| walsh.select(at(k, walsh.pairs())));
        let leaps = (worst - centre).abs() > LEAP * (widened - centre).abs();
        if leaps { worst } else { widened }
    };
    Some(Interval {
        low: end(|k, _| k),
        high: end(|k, pairs| pairs + 1 - k),
    })
}

/// The most epochs, of `n`, that the far hump of the worst shape has with a chance of at most [`FAR_TAIL`].
fn far(n: usize) -> Option<usize> {
    let far = Binomial::new(1.0 - std::f64::consts::FRAC_1_SQRT_2, n as u64).ok()?;
    // Counts below `rare` are rare enough; those from `common` on are not.
    let (mut rare, mut common) = (0, n as u64);
    while rare < common {
        let middle = rare.midpoint(common);
        if far.cdf(middle) <= FAR_TAIL {
            rare = middle + 1;
        } else {
            common = middle;
        }
    }
    usize::try_from(rare).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::signed_rank_interval;

    #[test]
    fn the_worst_shape_by_counting() {
        // Powers of √½: no epoch of 9 is far in 4.4 % of runs, none of 8 in 6.25 %; at most one of 14 in 5.3 %.
        let counted = [8, 9, 10, 14, 20, 60].map(far);
        assert_eq!(
            counted,
            [None, Some(0), Some(0), Some(1), Some(2), Some(11)]
        );
        assert_eq!(interval_without_symmetry(&[1.0; 9]), None);
        assert!(interval_without_symmetry(&[1.0; 10]).is_some());
        assert_eq!(interval_without_symmetry(&[]), None);
    }

    /// One far epoch of ten must reach the end; with none there is nothing to see.
    #[test]
    fn a_far_epoch_reaches_the_end() {
        let mut epochs: Vec<f64> = (0..10).map(|i| 0.001 * f64::from(i)).collect();
        epochs[4] = 1.0;
        let [wide, narrow] = [
            interval_without_symmetry(&epochs).unwrap(),
            signed_rank_interval(&epochs, 0.90).unwrap(),
        ];
        assert!(wide.high > 0.4 && narrow.high < 0.01, "{wide:?} {narrow:?}");
        let mirrored: Vec<f64> = epochs.iter().map(|x| -x).collect();
        assert_eq!(
            interval_without_symmetry(&mirrored).unwrap().low,
            -wide.high
        );
    }

    #[test]
    fn it_is_little_wider_than_the_symmetric_one() {
        for n in 10..300 {
            let epochs: Vec<f64> = (0..n).map(f64::from).collect();
            let wide = interval_without_symmetry(&epochs).unwrap().half_width();
            let narrow = signed_rank_interval(&epochs, 0.90).unwrap().half_width();
            let wider = wide / narrow;
            assert!((1.0..=1.3).contains(&wider), "{n}: {wider}");
        }
    }
}
