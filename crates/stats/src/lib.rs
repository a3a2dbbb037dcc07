//! Estimates, intervals and verdicts for repeated measurements on noisy machines.
//!
//! Pure mathematics: no input or output, no clock, no unsafe code, and no panic on any input. Values that are not
//! finite are ignored; a result that the data can't give is `None`.
//!
//! The path of a run: trials → [`sample::epoch_medians`] → per case [`Estimate::for_case`], per comparison
//! [`Differences::pair`] → at each look [`looks::precise_enough`] → once, at the end, [`judge`].
//! [`sessions::judge_sessions`] compares records of separate sessions. If instructions are counted instead, a
//! case's value is its [`count()`], and [`judge_exact`] compares ranges. [`judge_sums`] decides whether parts add
//! up. METHODOLOGY.md has the method, and docs/evidence/ how well it holds in simulations.
#![forbid(unsafe_code)]

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod additive;
pub mod alarm;
pub mod asymmetric;
pub mod count;
pub mod dependence;
pub mod differences;
pub mod estimate;
pub mod halves;
pub mod holm;
pub mod looks;
pub mod modes;
mod normal;
pub mod own_work;
mod pairwise;
pub mod power;
mod rank_sum;
pub mod sample;
pub mod session_spread;
pub mod sessions;
mod signed_rank;
pub mod sittings;
pub mod spread;
pub mod totals;
pub mod undisturbed;
pub mod verdict;

pub use additive::{Additive, judge_sums};
pub use alarm::Alarm;
pub use asymmetric::interval_without_symmetry;
pub use count::{Count, REPEATS, count};
pub use differences::Differences;
pub use estimate::{
    CONFIDENCE, Estimate, Interval, hodges_lehmann, signed_rank_interval, signed_rank_p,
};
pub use sample::Sample;
pub use spread::Spread;
pub use totals::{Total, TotalRatio, hold_against_totals, mean_of_epochs};
pub use verdict::{
    Budget, Comparison, Policy, Quantity, Sense, Verdict, judge, judge_exact, judge_quantities,
};
