//! Estimates, intervals and verdicts for repeated measurements on noisy machines.
//!
//! Pure mathematics: no input or output, no clock, no unsafe code, and no panic on any input. Values that
//! are not finite are passed over; what cannot be told from the data given is `None`.
//!
//! The path of a run: trials → [`sample::epoch_medians`] → per case [`Estimate::of_case`], per comparison
//! [`Differences::pair`] → at each look [`looks::precise_enough`] → once, at the end, [`judge`]. Records of
//! separate sessions are compared by [`sessions::judge_sessions`]. Where instructions are counted instead, a
//! case's value is its [`count()`] and a comparison is one of ranges, [`judge_exact`]. Whether parts add up, [`judge_sums`] tells. `METHODOLOGY.md` says why it is done so,
//! and how well it holds by simulation.
#![forbid(unsafe_code)]

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod additive;
pub mod count;
pub mod estimate;
pub mod holm;
pub mod looks;
pub mod modes;
mod normal;
mod pairwise;
pub mod power;
mod rank_sum;
pub mod rounds;
pub mod sample;
pub mod sessions;
mod signed_rank;
pub mod spread;
pub mod verdict;

pub use additive::{Additive, judge_sums};
pub use count::{Count, REPEATS, count};
pub use estimate::{
    CONFIDENCE, Estimate, Interval, hodges_lehmann, signed_rank_interval, signed_rank_p,
};
pub use sample::Sample;
pub use spread::Spread;
pub use verdict::{Budget, Comparison, Differences, Policy, Sense, Verdict, judge, judge_exact};
