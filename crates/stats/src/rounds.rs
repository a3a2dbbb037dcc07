//! How many trials a case gets in an epoch.
//!
//! A trial more in each epoch narrows the part of an epoch's value that trials scatter, but not the part
//! that the load fixed; it costs a round, where another epoch would cost a load and all its rounds. The
//! best number for a given time is √(load cost / round cost · variance within / variance between), the
//! classical answer for two-stage sampling (Cochran 1977, "Sampling Techniques", section 10.6), here with
//! robust variances from [`Spread`].

use crate::spread::Spread;

/// Trials in an epoch when nothing is known yet.
pub const DEFAULT_TRIALS: usize = 3;

/// Fewest trials in an epoch: two, because one would show no spread within the epoch.
pub const MIN_TRIALS: usize = 2;

/// Most trials in an epoch.
pub const MAX_TRIALS: usize = 10;

/// The number of trials a case should get in each epoch.
///
/// `load_cost` is what an epoch costs before its first trial (loading, warm-up), `round_cost` what one
/// round costs; both in one unit, such as seconds. [`DEFAULT_TRIALS`] where any input says nothing.
#[must_use]
pub fn trials_per_epoch(spread: Option<&Spread>, load_cost: f64, round_cost: f64) -> usize {
    let Some(spread) = spread else {
        return DEFAULT_TRIALS;
    };
    let price = load_cost / round_cost;
    let ratio = (spread.trial / spread.epoch).powi(2); // no spread between epochs: ∞, as many as allowed
    let best = (price * ratio).sqrt();
    if best.is_nan() || price.is_nan() || price < 0.0 {
        return DEFAULT_TRIALS;
    }
    best.round().clamp(MIN_TRIALS as f64, MAX_TRIALS as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(epoch: f64, trial: f64) -> Spread {
        Spread { epoch, trial }
    }

    #[test]
    fn follows_the_price_and_the_spread() {
        let at = |e, t, load, round| trials_per_epoch(Some(&spread(e, t)), load, round);
        assert_eq!(at(0.01, 0.02, 1.0, 1.0), 2);
        assert_eq!(at(0.01, 0.02, 4.0, 1.0), 4);
        assert_eq!(at(0.01, 0.02, 400.0, 1.0), MAX_TRIALS);
        assert_eq!(at(0.02, 0.001, 4.0, 1.0), MIN_TRIALS);
        assert_eq!(at(0.0, 0.01, 1.0, 1.0), MAX_TRIALS);
    }

    #[test]
    fn says_the_default_when_it_cannot_know() {
        assert_eq!(trials_per_epoch(None, 1.0, 1.0), DEFAULT_TRIALS);
        for (e, t, load, round) in [
            (0.0, 0.0, 1.0, 1.0),
            (f64::NAN, 1.0, 1.0, 1.0),
            (1.0, 1.0, f64::NAN, 1.0),
            (1.0, 1.0, -1.0, 1.0),
            (1.0, 1.0, 0.0, 0.0),
        ] {
            assert_eq!(
                trials_per_epoch(Some(&spread(e, t)), load, round),
                DEFAULT_TRIALS
            );
        }
    }
}
