//! Probes: switched on and off beside a workload. The kinds: a BPF object, a systemd unit, a command, a built-in
//! probe, several of these joined.
//!
//! A probe is opened once per epoch, when the server runs; then it is attached for a window and detached after it,
//! many times. Dropping it removes everything that it brought.

pub mod agent;
mod built_in;
mod command;
mod counting;
mod inventory;
mod joined;
mod leftovers;
mod nothing;
mod programs;
mod registry;
#[cfg(test)]
#[path = "../../bpf/tests/require/mod.rs"]
mod require;
mod spec;
mod stack_printer;
mod stats;
mod unit;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use bpfcost_bpf::{Feature, Space};
use serde::{Deserialize, Serialize};

pub use built_in::{Arguments, BuiltIn, Runs};
pub use command::program;
pub use inventory::{ExpectedParts, Inventory};
pub use leftovers::leftovers;
pub use registry::add;
pub use registry::open_agent;
pub use spec::Spec;
pub use stack_printer::{PrintedStacks, StackPrinter};
pub use unit::{unit_group, unit_pids};

use self::{command::Kind, joined::JoinedProbes};
use bpfcost_model::Fault;
use bpfcost_process::RunContext;

/// Something that can be switched on and off while a server runs.
pub trait Probe {
    /// Switches it on, and returns when it is ready: from here on it sees every event.
    fn attach(&mut self, context: &RunContext) -> Result<(), Fault>;

    /// Switches it off, and returns what it counted since it was switched on.
    fn detach(&mut self) -> Result<WindowCounts, Fault>;

    /// Processes of the probe; their CPU time is counted as the probe's.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// CPU time of all processes that it ever had, in nanoseconds, where their control groups report it.
    fn cpu_ns(&self) -> Option<f64> {
        None
    }

    /// The kernel's numbers of its BPF programs while it is attached, where it does not count its hits itself: then they
    /// are counted in rehearsals, and its inventory is compared in each window.
    fn programs(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// A probe's counts of a window, while it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Runs of its programs, where they can be counted at no cost.
    pub hits: Option<u64>,
    /// Events that it lost.
    pub lost: u64,
    /// Further counts by name: `requests`, `bytes_written`.
    pub counts: BTreeMap<String, u64>,
}

/// An error for input that is no probe: wrong on every machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongProbe(String);

/// Refuses a built-in probe that there is not, or that does not take these arguments.
pub fn check_built_in(spec: &Spec) -> Result<()> {
    needs(spec).map(drop)
}

/// Refuses a probe that is seen not to be there, before anything is started for it.
pub fn there(spec: &Spec) -> Result<()> {
    spec.parts().iter().try_for_each(|part| match part {
        Spec::BuiltIn { .. } => check_built_in(part),
        Spec::Object { path, .. } if !path.is_file() => {
            bail!(
                "there is no file {}\n  Check the path, or compile it: clang -g -O2 -target bpf -c FILE.bpf.c",
                path.display()
            )
        }
        Spec::Unit(name) => bpfcost_process::restore::SavedState::of_unit(name).map(drop),
        Spec::Command(command) | Spec::UserTool(command) | Spec::Process(command) => {
            command::there(command)
        }
        _ => Ok(()),
    })
}

/// Returns true for a probe that looks at the processes of a server: all built-in agents do.
pub fn is_of_server(spec: &Spec) -> bool {
    let mut probes = built_in(spec).filter_map(|(one, _)| one.ok());
    probes.any(|one| matches!(one.runs, Runs::Agent(_)))
}

/// Returns true for a probe with several parts that run in the probed processes: each would stop a process that
/// starts, and let it go before the other is there.
pub fn is_in_user_space_twice(spec: &Spec) -> bool {
    let space = Space::User;
    let parts = spec.parts().iter();
    let inside =
        parts.filter(|part| matches!(part, Spec::Object { space: one, .. } if *one == space));
    inside.count() > 1
}

/// Seconds that switching a probe on and off takes once it is started, so that a plan can say how long it takes.
pub fn switch_s(spec: &Spec) -> f64 {
    let seconds = spec.parts().iter().map(|part| match part {
        Spec::BuiltIn { name, .. } => registry::find(name).map_or(0.0, |one| one.switch_s),
        _ => 0.1,
    });
    seconds.sum()
}

/// Opens a probe for a running workload.
pub fn open(spec: &Spec) -> Result<Box<dyn Probe>> {
    Ok(match spec {
        Spec::BuiltIn { name, arguments } => registry::open(name, arguments)?,
        Spec::Joined(all) => Box::new(JoinedProbes(all.iter().map(open).collect::<Result<_>>()?)),
        Spec::Object {
            path,
            program,
            space,
        } => {
            let file = path.display().to_string();
            let arguments: Vec<String> = [file].into_iter().chain(program.clone()).collect();
            let agent = match space {
                Space::Kernel => agent::OBJECT,
                Space::User => agent::PROCESS_OBJECT,
            };
            Box::new(agent::Remote::start(agent, &arguments)?)
        }
        Spec::Unit(name) => Box::new(unit::SystemdUnit::open(name)?),
        Spec::Command(command) => Box::new(command::Tool::new(command, Kind::Bpf)?),
        Spec::UserTool(command) => Box::new(command::Tool::new(command, Kind::UserSpace)?),
        Spec::Process(command) => Box::new(command::Tool::new(command, Kind::Plain)?),
    })
}

/// Kernel features that a probe needs, as far as its name shows.
pub fn needs(spec: &Spec) -> Result<Vec<Feature>> {
    let needs = built_in(spec).map(|(one, arguments)| (one?.needs)(arguments));
    Ok(needs.collect::<Result<Vec<_>>>()?.concat())
}

/// Returns why this kernel does not support a built-in probe, or `None`.
pub fn absent(spec: &Spec) -> Result<Option<String>> {
    let reasons = built_in(spec).map(|(one, arguments)| (one?.absent)(arguments));
    Ok(reasons
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .next())
}

/// The built-in probes in it, with their arguments.
fn built_in(spec: &Spec) -> impl Iterator<Item = (Result<BuiltIn>, &Arguments)> {
    spec.parts().iter().filter_map(|part| match part {
        Spec::BuiltIn { name, arguments } => Some((registry::find(name), arguments.as_slice())),
        _ => None,
    })
}
