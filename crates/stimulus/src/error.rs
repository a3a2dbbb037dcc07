//! Reasons why a stimulus is not available.

use std::io;

/// Reason why a stimulus cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of the preparation failed.
    #[error("cannot {step}: {source}")]
    Step {
        /// The step, as a verb and its object.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Such a stimulus is only for guests: the kernel chooses which process to kill.
    #[error("it is for guests alone: other processes may run on this machine")]
    NotAlone,
    /// The preparation succeeded, but not the operation that follows it.
    #[error("the first operation failed: {0}")]
    Operation(#[source] io::Error),
}

/// Result of a preparation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Names the step that failed.
pub(crate) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T> {
        self.map_err(|error| Error::Step {
            step,
            source: error.into(),
        })
    }
}
