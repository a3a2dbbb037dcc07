//! The standard normal distribution, from statrs.

use statrs::distribution::{ContinuousCDF, Normal};

/// The z below which a share `p` of the distribution lies; ±∞ at 0 and 1, 0 for what is no share.
pub(crate) fn quantile(p: f64) -> f64 {
    match p {
        p if p.is_nan() => 0.0,
        p if p <= 0.0 => f64::NEG_INFINITY,
        p if p >= 1.0 => f64::INFINITY,
        p => Normal::standard().inverse_cdf(p),
    }
}

/// The share of the distribution at or below `z`.
pub(crate) fn cdf(z: f64) -> f64 {
    if z.is_nan() {
        0.5
    } else {
        Normal::standard().cdf(z)
    }
}
