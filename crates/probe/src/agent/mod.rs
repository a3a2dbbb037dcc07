//! Agents: probes with a user-space part, each in its own process, so that its CPU time is counted separately: the
//! built-in ones, and the reader of a BPF object's buffers. `bpfcost agent NAME ARGUMENT…` (hidden) is that process;
//! `Remote` is the other end.
//!
//! The protocol is lines of JSON: `AgentRequest` on the agent's standard input, `AgentReply` on its standard output. The agent ends
//! when its input does, so it never outlives its parent.
//!
//! To add a built-in one: a file here with an [`Agent`] and its entry, and its line in `registry.rs`.

pub(super) mod l7;
pub(super) mod object;
mod remote;
mod serve;
pub(super) mod sslsniff;
pub(super) mod stack;
pub(super) mod syscount;
mod watched;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use remote::Remote;
pub use serve::serve;

use super::WindowCounts;
use bpfcost_model::Problem;
use bpfcost_process::RunContext;

/// A probe with its own user-space part, seen from inside its process.
pub trait Agent {
    /// Switches it on for this server; from here on it sees every event.
    fn attach(&mut self, context: &RunContext) -> Result<()>;

    /// Reads the events that are there, and waits about `timeout` for more.
    fn consume(&mut self, timeout: Duration) -> Result<()>;

    /// Switches it off, reads the remaining events, and returns the counts since it was switched on. An error
    /// that is a [`Problem`] means that the result can't be right.
    fn detach(&mut self) -> Result<WindowCounts>;

    /// Facts about it once it is loaded.
    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo::default())
    }
}

/// Facts about an agent once it is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The kernel's numbers of its programs, where it does not count its hits itself.
    pub programs: Vec<u32>,
    /// True where no events reach it: then it sleeps while it is on, and costs no CPU time.
    pub idle: bool,
}

/// Interval at which an agent polls its events: waking it for each would cost the server, whose CPU does the
/// waking, often more than the event itself.
const READ_INTERVAL: Duration = Duration::from_millis(5);

/// The agent that a BPF object has: no built-in probe, which is what the others are.
pub(super) const OBJECT: &str = "object";
/// The agent of one whose programs run in the probed processes.
pub(super) const PROCESS_OBJECT: &str = "process-object";

/// A request to an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AgentRequest {
    /// To switch itself on.
    Attach(Box<RunContext>),
    /// To switch itself off.
    Detach,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AgentReply {
    /// The programs are loaded.
    Loaded(AgentInfo),
    /// Switched on.
    Attached,
    /// Switched off, with the counts of the window.
    Detached(WindowCounts),
    /// A contradiction in what it saw.
    Invalid(Problem),
    /// Wrong input.
    Wrong(String),
    /// Any other error.
    Failed(String),
}

impl AgentReply {
    /// The reply of an agent that ended with an error.
    fn from_error(error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
        if causes.any(bpfcost_bpf::Error::is_input) {
            AgentReply::Wrong(text)
        } else {
            AgentReply::Failed(text)
        }
    }
}
