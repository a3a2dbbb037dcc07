//! Events of a run, in the order in which they happen. Each is a line of the journal, goes to the observer first,
//! and is then folded into [`Measurements`](super::Measurements).

use serde::{Deserialize, Serialize};

use crate::{Calibration, Warning};
use bpfcost_model::{Problem, Slices, Trial};

/// Something that happened in a run. One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A case can't run on this target.
    Unsupported {
        /// Index into the plan's cases.
        case: usize,
        /// The missing feature, and what to do about it.
        reason: String,
    },
    /// An epoch was loaded.
    EpochStarted {
        /// Counted from 0 over the whole run, resumed parts included.
        epoch: usize,
        /// Seconds that loading took.
        load_s: f64,
        /// Kernel memory held by the epoch, in bytes.
        kernel_bytes: Option<u64>,
    },
    /// A case was prepared, and did something that its record holds.
    Observed {
        /// Index into the plan's cases.
        case: usize,
        /// The observed facts, in a form of its experiment's.
        facts: serde_json::Value,
    },
    /// A case's batch was found.
    Calibrated {
        /// Index into the plan's cases.
        case: usize,
        /// The batch size and how it was calibrated.
        calibration: Calibration,
    },
    /// A trial ended and proved itself.
    Trial {
        /// The epoch that it belongs to.
        epoch: usize,
        /// The round within the epoch.
        round: usize,
        /// Index into the plan's cases.
        case: usize,
        /// The trial's values.
        trial: Trial,
    },
    /// A trial or a preparation failed its checks; the case is invalid from here on.
    Invalid {
        /// The epoch in which it failed.
        epoch: usize,
        /// Index into the plan's cases.
        case: usize,
        /// The failed check.
        problem: Problem,
    },
    /// The sentinel was timed.
    Sentinel {
        /// The epoch in which it was timed.
        epoch: usize,
        /// The sentinel's cost, in the experiment's unit.
        value: f64,
        /// The slices of the anchor.
        #[serde(default, skip_serializing_if = "Slices::is_empty")]
        anchor: Slices,
    },
    /// Something that a reader of the result should know.
    Warned(Warning),
    /// An epoch ended whole.
    EpochFinished {
        /// The epoch.
        epoch: usize,
        /// Seconds from the start of its load to the end of its unload.
        seconds: f64,
        /// Seconds of it that the rounds took: the rest is the price of a load.
        #[serde(default)]
        rounds_s: f64,
    },
    /// The data was looked at.
    Looked {
        /// Whole epochs by now.
        epochs: usize,
        /// Cases whose interval is not yet narrow enough.
        open: usize,
        /// The epoch count of the next look.
        next: usize,
    },
    /// The run ended.
    Stopped {
        /// The reason.
        stop: Stop,
    },
}

/// The reason for which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// Every interval became narrow enough.
    Precision,
    /// The time was used up.
    Time,
    /// The asked number of epochs was reached (`--quick`), or no case is left to run.
    Rounds,
    /// Going on would have done harm, or what was measured is gone.
    Aborted,
    /// Interrupted.
    Interrupted,
}
