//! A trial: one timed observation of a case; and [`LoadedEpoch`], the epoch that runs it.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{Batch, Case, Fault, Slices};

/// One timed observation of a case that proved itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The main value, in the experiment's unit.
    pub value: f64,
    /// Operations that were timed: on each CPU where several ran at once.
    pub ops: u64,
    /// Time that the batch took, in nanoseconds of the target's clock.
    pub elapsed_ns: f64,
    /// Ticks of the machine's timer that fell into the batch, where the experiment can count them.
    #[serde(default, skip_serializing_if = "none")]
    pub ticks: u64,
    /// The number of times that the thread which ran the batch slept, where the experiment can tell. Used where
    /// instructions are counted, and not stored.
    #[serde(skip)]
    pub waits: u64,
    /// Further values by name, e.g. `reset_twice` (ns/op with the reset done twice), `lru_misses`.
    pub secondary: BTreeMap<String, f64>,
    /// The main value in each slice of the batch; empty where it was not cut.
    #[serde(default, skip_serializing_if = "Slices::is_empty")]
    pub slices: Slices,
    /// The same of further values, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secondary_slices: BTreeMap<String, Slices>,
}

impl Trial {
    /// A batch that took so long: its value is nanoseconds per operation.
    pub fn of_batch(batch: Batch, elapsed_ns: f64, secondary: BTreeMap<String, f64>) -> Self {
        Trial {
            value: elapsed_ns / batch.0 as f64,
            ops: batch.0,
            elapsed_ns,
            secondary,
            ..Trial::default()
        }
    }
}

/// Returns whether a count is 0, which journals leave out.
fn none(count: &u64) -> bool {
    *count == 0
}

/// Facts and warnings from the preparation of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Facts for its record, in a form of its experiment's.
    pub facts: Option<serde_json::Value>,
    /// Warnings for readers: a stable code for programs, and a text for people.
    pub warnings: Vec<(&'static str, String)>,
}

/// An epoch: everything that the cases need, loaded. Dropping it detaches, stops and frees
/// everything that it made.
pub trait LoadedEpoch {
    /// Brings a case into the state that is measured and proves it once, untimed: fills tables,
    /// replays the sequence and compares every result.
    fn prepare(&mut self, case: &Case) -> Result<(), Fault>;

    /// Returns the facts and warnings from the preparation of a case; called once it is prepared.
    fn observed(&mut self, _case: &Case) -> Result<Observed, Fault> {
        Ok(Observed::default())
    }

    /// Times one batch of a case; the trial checks itself in the timed phase.
    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault>;

    /// Proves a case once more, after its last trial of the epoch.
    fn conclude(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    /// Kernel memory that this epoch holds, in bytes, where known.
    fn kernel_bytes(&self) -> Option<u64> {
        None
    }

    /// Frees everything and waits until the kernel has done so, outside any round.
    fn unload(self: Box<Self>) -> Result<()>;
}

/// A program that stays loaded through the run, to separate drift from the luck of a load.
pub trait Sentinel {
    /// A short timed batch.
    fn trial(&mut self) -> Result<SentinelTrial>;
}

/// One timed batch of the sentinel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentinelTrial {
    /// The sentinel's cost, in the experiment's unit.
    pub value: f64,
    /// The slices of the anchor: work that anyone else on the core slows. Empty where there is none.
    pub anchor: Slices,
}
