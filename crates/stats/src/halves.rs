//! The reading of a comparison of two equal costs: the trials of the baseline alone, half of them against the other
//! half.
//!
//! In each epoch, chance deals the trials of the baseline out to two sides, and the log ratio of the sides' medians is
//! the epoch's value: no effect is in it, but all noise is. Over epochs, it gets the estimate and the interval of any
//! comparison. Which half is divided by which is chance, so the true value is 0, and the interval's half-width says
//! how far from 0 an estimate lies in 19 of 20 runs. One deal is luck; so it is done many times, and the median of the
//! half-widths is taken.
//!
//! A side has half as many trials as a case, and its median varies more. Each epoch's value is scaled down to the
//! variance that the medians of two whole cases would have, as if trials were independent. Neighbours in time are
//! dealt to different sides, as a case and its baseline are neighbours in a round: what moves slowly cancels.

use crate::{
    Estimate,
    sample::{Sample, median},
    spread::variance_of_median,
};

/// Deals, of which the median counts.
const DEALS: u64 = 101;

/// The distance from 0 within which the log ratio of a case that costs nothing lies in 19 of 20 runs, from all trials
/// of the baseline by epoch, in their order. Values that are not above zero are skipped. `None` below 6 epochs with two
/// trials. `seed` decides how they are dealt.
#[must_use]
pub fn reach<E: AsRef<[f64]>>(epochs: &[E], seed: u64) -> Option<f64> {
    let usable = |trials: &E| -> Vec<f64> {
        let trials = trials.as_ref().iter().copied();
        trials
            .filter(|value| *value > 0.0 && value.is_finite())
            .collect()
    };
    let epochs: Vec<Vec<f64>> = epochs.iter().map(usable).collect();
    let mut coin = Coin(seed);
    let deals = (0..DEALS).map(|_| {
        let ratios: Vec<f64> = epochs
            .iter()
            .filter_map(|trials| ratio(trials, &mut coin))
            .collect();
        Some(Estimate::for_difference(&ratios)?.half_width())
    });
    median(&deals.collect::<Option<Vec<f64>>>()?)
}

/// The log ratio of two halves of an epoch, scaled to that of two cases; `None` below two trials.
fn ratio(trials: &[f64], coin: &mut Coin) -> Option<f64> {
    let mut sides = [Vec::new(), Vec::new()];
    for neighbours in trials.chunks(2) {
        let first = usize::from(coin.toss());
        for (place, value) in neighbours.iter().enumerate() {
            sides[(first + place) % 2].push(*value);
        }
    }
    let [one, other] = [Sample::new(&sides[0])?, Sample::new(&sides[1])?];
    let dealt = variance_of_median(one.len()) + variance_of_median(other.len());
    let whole = 2.0 * variance_of_median(trials.len());
    Some((one.median() / other.median()).ln() * (whole / dealt).sqrt())
}

/// Fair and repeatable: splitmix64 (Steele, Lea & Flood 2014).
struct Coin(u64);

impl Coin {
    fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> 63 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_trials_tell_as_much_as_their_difference() {
        // The two halves are the trials, and two means of two vary half as much.
        let epochs: Vec<[f64; 2]> = vec![[1.0, 1.02]; 12];
        let far = 1.02_f64.ln() / 2.0_f64.sqrt();
        let reach = reach(&epochs, 7).expect("enough");
        assert!(reach > 0.3 * far && reach <= far + 1e-12, "{reach} {far}");
    }

    #[test]
    fn equal_trials_tell_nothing_and_order_of_epochs_is_no_matter() {
        assert_eq!(reach(&[[5.0; 5]; 10], 1), Some(0.0));
        // What moves from epoch to epoch cancels.
        let moving: Vec<Vec<f64>> = (1..20).map(|level| vec![f64::from(level); 4]).collect();
        assert_eq!(reach(&moving, 1), Some(0.0));
    }

    #[test]
    fn what_is_too_little_has_no_reach() {
        assert_eq!(reach(&[[5.0; 5]; 5], 1), None);
        assert_eq!(reach(&[[5.0]; 30], 1), None);
        assert_eq!(reach::<[f64; 0]>(&[], 1), None);
        let unusable = [[f64::NAN, 0.0, 1.0]; 12];
        assert_eq!(reach(&unusable, 1), None);
    }

    #[test]
    fn the_seed_decides_it() {
        let epochs: Vec<Vec<f64>> = (0..12)
            .map(|epoch| {
                (0..5)
                    .map(|trial| 100.0 + f64::from(epoch * trial % 7))
                    .collect()
            })
            .collect();
        assert_eq!(reach(&epochs, 3), reach(&epochs, 3));
        let reaches: Vec<f64> = (0..9).filter_map(|seed| reach(&epochs, seed)).collect();
        let (low, high) = (
            reaches.iter().copied().fold(f64::MAX, f64::min),
            reaches.iter().copied().fold(0.0, f64::max),
        );
        // Many deals leave little to luck.
        assert!(high / low < 1.3, "{reaches:?}");
    }
}
