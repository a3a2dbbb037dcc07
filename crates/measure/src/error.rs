//! Errors that end a run.

use thiserror::Error;

use crate::time_option;

/// An error that ends a run. Events before it stay observed.
#[derive(Debug, Error)]
pub enum Error {
    /// The time asked for ends before anything may be inferred.
    #[error(
        "{seconds} s are too short: the first look comes after {epochs} epochs, about {needed:.0} \
         s of measuring\n  Give more time (--time {}), or measure fewer cases (--case GLOB)",
        time_option(*needed)
    )]
    TooShort {
        /// Seconds that were asked for.
        seconds: f64,
        /// Seconds that the first look takes, rounded up to whole ones.
        needed: f64,
        /// Whole epochs that the first look takes.
        epochs: usize,
    },
    /// The resumed data is not of this plan.
    #[error(
        "the data to resume has {found} cases, the plan has {expected}: they belong to different \
         runs\n  Resume a journal with its own plan"
    )]
    OtherPlan {
        /// Cases of the plan.
        expected: usize,
        /// Cases of the data.
        found: usize,
    },
    /// The experiment could not go on.
    #[error("{doing} failed")]
    Broken {
        /// The failed step, e.g. `loading epoch 3`.
        doing: String,
        /// The experiment's error.
        source: anyhow::Error,
    },
    /// An event could not be passed on, e.g. written to the journal.
    #[error("the measurements could not be saved")]
    Unobserved(#[source] anyhow::Error),
}
