//! Failures of measurements. Experiments, workloads and probes all fail in these ways; this module depends on none of
//! them.

use serde::{Deserialize, Serialize};

/// Code of [`Fault::Enough`] where a probe cost too much.
pub const ABORTED: &str = "aborted";
/// The same where the watched service has ended.
pub const ENDED: &str = "ended";

/// The reason for which a trial has no value.
#[derive(Debug)]
pub enum Fault {
    /// The trial ran and failed its own checks: the case is invalid.
    Invalid(Problem),
    /// The trial could not run: the whole run ends.
    Broken(anyhow::Error),
    /// No further trial may follow: the run ends with what it has.
    Enough {
        /// The code for programs: [`ABORTED`] or [`ENDED`].
        code: &'static str,
        /// The reason, in a sentence.
        text: String,
    },
}

impl<E: Into<anyhow::Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Fault::Broken(error.into())
    }
}

/// A failed check: what was expected and what was seen, so that a person can act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{check}: expected {expected}, got {got}")]
pub struct Problem {
    /// The thing that was checked, e.g. `lru misses`.
    pub check: String,
    /// The value that a right run shows.
    pub expected: String,
    /// The value that this run showed.
    pub got: String,
    /// The meaning of the difference, or a hex diff; may have several lines.
    pub detail: String,
}

/// The problem that something is not as expected; `None` where it is.
pub fn differs<T: PartialEq + ToString>(
    check: &str,
    expected: T,
    got: T,
    detail: &str,
) -> Option<Problem> {
    (expected != got).then(|| Problem {
        check: check.to_owned(),
        expected: expected.to_string(),
        got: got.to_string(),
        detail: detail.to_owned(),
    })
}

/// Nothing, or the problem as the fault that it is.
pub fn prove(problem: Option<Problem>) -> Result<(), Fault> {
    problem.map_or(Ok(()), |problem| Err(Fault::Invalid(problem)))
}
