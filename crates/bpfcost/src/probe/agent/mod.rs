//! Agents: built-in probes with a user space of their own, each in a process of its own, so that its CPU time
//! is told apart. `bpfcost agent NAME ARGUMENT…`, hidden, is that process; [`Remote`] is its other end.
//!
//! They speak in lines of JSON: [`Ask`] on the agent's standard input, [`Answer`] on its standard output. The
//! agent ends when its input does, so it never outlives who started it.
//!
//! To add one: a file here that implements [`Agent`], and its name in [`AGENTS`].

pub(super) mod l7;
mod remote;
mod serve;
mod sslsniff;
mod syscount;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub(crate) use remote::Remote;
pub(crate) use serve::serve;

use super::Seen;
use crate::{experiment::Problem, workload::Scene};

/// A probe with a user space of its own, seen from inside its process.
pub(crate) trait Agent {
    /// Switches it on for this server; from here on it sees every event.
    fn attach(&mut self, scene: &Scene) -> Result<()>;

    /// Takes in what is there, and waits for more, for about so long.
    fn consume(&mut self, patience: Duration) -> Result<()>;

    /// Switches it off, takes in what is left, and tells what was seen since it was switched on. An error that
    /// is a [`Problem`] says that this can't be right.
    fn detach(&mut self) -> Result<Seen>;
}

/// How often an agent takes in what comes without waking it: to be woken for each event would cost the server,
/// whose CPU has to do it, more than many an event itself.
const EVERY: Duration = Duration::from_millis(5);

/// Opens an agent with these arguments: loads its programs.
type Open = fn(&[String]) -> Result<Box<dyn Agent>>;

/// The agents, by name.
const AGENTS: &[(&str, Open)] = &[
    ("l7", l7::open),
    ("sslsniff", sslsniff::open),
    ("syscount", syscount::open),
];

/// The names of the agents.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    AGENTS.iter().map(|(name, _)| *name)
}

/// Whether there is an agent of that name.
pub(super) fn known(name: &str) -> bool {
    AGENTS.iter().any(|(known, _)| *known == name)
}

/// What an agent is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ask {
    /// To switch itself on.
    Attach(Box<Scene>),
    /// To switch itself off.
    Detach,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// Its programs are loaded.
    Loaded,
    /// It is on.
    Attached,
    /// It is off, and saw this.
    Detached(Seen),
    /// What it saw can't be right.
    Invalid(Problem),
    /// It failed.
    Failed(String),
}
