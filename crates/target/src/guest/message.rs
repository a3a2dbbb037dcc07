//! The messages between host and guest, each a line of JSON.

use serde::{Deserialize, Serialize};

use bpfcost_measure::{Event, Plan, Warning};
use bpfcost_program::{Trace, Watch};
use bpfcost_record::{Disturbance, Machine};
use bpfcost_workload::{LoadResult, outside::LoadOrder};

/// What the guest is to do: the one thing that the host writes before it boots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// All that decides the run.
    pub plan: Plan,
    /// Whether the folder holds the journal of earlier parts of the run too.
    pub resumed: bool,
}

/// What the guest says, in this order: its machine, what happens, and how it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// It has booted, can measure, and is this machine.
    Machine(Box<Machine>),
    /// Something happened in the run.
    Event(Event),
    /// What disturbed the run so far.
    Disturbed(Disturbance),
    /// It wants load from outside, and waits for the [`LoadReply`].
    Load {
        /// How many it has wanted before.
        number: u32,
        /// What it wants.
        order: LoadOrder,
    },
    /// It wants its instructions recorded, or the recording, and waits for the [`TraceReply`].
    Trace {
        /// How many requests it has sent before.
        number: u32,
        /// What it wants.
        order: TraceOrder,
    },
    /// The run came to its end. Nothing comes after it.
    Ended {
        /// What disturbed it in all.
        disturbance: Disturbance,
        /// BPF programs of others in the guest.
        others: Vec<String>,
        /// What a reader of the record should know.
        warnings: Vec<Warning>,
    },
    /// The run failed. Nothing comes after it.
    Failed(Failure),
    /// The program inside ended without a message; its exit code, as a shell reports it.
    Gone(i32),
}

/// The result of the load that a guest asked for: that of a window, none for a warm-up, or why it failed.
pub type LoadReply = Result<Option<LoadResult>, String>;

/// When a recording of instructions begins and ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceOrder {
    /// Begin, with these programs.
    Begin(Watch),
    /// End.
    End,
}

/// The events that were recorded; none yet where a recording begins. Or why there is no recording.
pub type TraceReply = Result<Trace, String>;

/// Why a run in the guest failed, in the guest's own words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What, why, and what to do.
    pub text: String,
    /// The exit code that goes with it.
    pub exit: u8,
    /// The seconds that would have been enough, where the time was too short.
    pub needed_s: Option<f64>,
}
