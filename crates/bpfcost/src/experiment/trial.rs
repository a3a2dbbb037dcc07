//! A trial: one timed observation of a case, and the loaded thing that makes it.

use std::{collections::BTreeMap, fmt};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{Batch, Case};

/// One timed observation of a case that proved itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The main value, in the experiment's unit.
    pub value: f64,
    /// Operations that were timed: on each CPU where several ran at once.
    pub ops: u64,
    /// Time that the batch took, in nanoseconds of the target's clock.
    pub elapsed_ns: f64,
    /// Ticks of the machine's timer that fell into the batch, where the experiment can tell.
    #[serde(default, skip_serializing_if = "none")]
    pub ticks: u64,
    /// Further values by name, e.g. `reset_twice` (ns/op with the reset done twice), `lru_misses`.
    pub secondary: BTreeMap<String, f64>,
}

impl Trial {
    /// A batch that took so long: its value is nanoseconds per operation.
    pub(crate) fn of_batch(
        batch: Batch,
        elapsed_ns: f64,
        secondary: BTreeMap<String, f64>,
    ) -> Self {
        Trial {
            value: elapsed_ns / batch.0 as f64,
            ops: batch.0,
            elapsed_ns,
            ticks: 0,
            secondary,
        }
    }
}

/// Whether a count is 0, which journals leave out.
fn none(count: &u64) -> bool {
    *count == 0
}

/// The code of [`Fault::Enough`] where a probe was let go of.
pub const LET_GO: &str = "aborted";
/// The same where what was watched has ended.
pub const ENDED: &str = "ended";

/// Why a trial has no value.
#[derive(Debug)]
pub enum Fault {
    /// The trial ran and failed its own checks: the case is invalid.
    Invalid(Problem),
    /// The trial could not run: the whole run ends.
    Broken(anyhow::Error),
    /// No further trial may follow: the run ends with what it has.
    Enough {
        /// What a program knows it by: [`LET_GO`] or [`ENDED`].
        code: &'static str,
        /// Why, in a sentence.
        text: String,
    },
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        Fault::Broken(error)
    }
}

/// A failed check: what was expected and what was seen, so that a person can act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What was checked, e.g. `lru misses`.
    pub check: String,
    /// What a right run shows.
    pub expected: String,
    /// What this one showed.
    pub got: String,
    /// What it means, or a hex diff; may have several lines.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: expected {}, got {}",
            self.check, self.expected, self.got
        )
    }
}

impl std::error::Error for Problem {}

/// The problem that something is not as expected; `None` where it is.
pub(crate) fn differs<T: PartialEq + ToString>(
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

/// An epoch: everything that the cases need, loaded. Dropping it detaches, stops and frees
/// everything that it made.
pub trait Loaded {
    /// Brings a case into the state that is measured and proves it once, untimed: fills tables,
    /// replays the sequence and compares every result.
    fn prepare(&mut self, case: &Case) -> Result<(), Fault>;

    /// Times one batch of a case; the trial checks itself in the timed phase.
    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault>;

    /// Kernel memory that this epoch holds, in bytes, where it can be told.
    fn kernel_bytes(&self) -> Option<u64> {
        None
    }

    /// Frees everything and waits until the kernel has done so, outside any round.
    fn unload(self: Box<Self>) -> Result<()>;
}

/// A program that stays loaded through the run, so that drift can be told from the luck of a load.
pub trait Sentinel {
    /// One short timed batch, in the experiment's unit.
    fn trial(&mut self) -> Result<f64>;
}
