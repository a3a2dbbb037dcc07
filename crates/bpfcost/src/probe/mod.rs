//! Probes: what is switched on and off beside a workload. Its kinds: a BPF object, a systemd unit, a command,
//! one of the built-in ones, several joined.
//!
//! A probe is opened once an epoch, when the server runs; then it is attached for a window and detached after
//! it, many times; dropping it takes everything away that it brought.

pub(crate) mod agent;
mod command;
mod counting;
mod joined;
mod left;
mod nothing;
mod programs;
mod spec;
mod stats;
mod unit;

use std::collections::BTreeMap;

use anyhow::{Result, anyhow, bail};
use bpfcost_bpf::{Feature, syscount::Syscount};
use serde::{Deserialize, Serialize};

pub(crate) use command::program;
pub(crate) use left::left;
pub use spec::Spec;
pub(crate) use unit::unit_pids;

use self::counting::Counting;
use crate::{fault::Fault, nearest::suggest, workload::Scene};

/// Something that can be switched on and off while a server runs.
pub trait Probe {
    /// Switches it on, and returns when it is ready: from here on it sees every event.
    fn attach(&mut self, scene: &Scene) -> Result<(), Fault>;

    /// Switches it off, and tells what it saw since it was switched on.
    fn detach(&mut self) -> Result<Seen, Fault>;

    /// Its processes, whose CPU time is its own.
    fn pids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// CPU time of all processes that it ever had, in nanoseconds, where their control groups tell.
    fn cpu_ns(&self) -> Option<f64> {
        None
    }

    /// The kernel's numbers of its BPF programs while it is attached, where it does not count its hits itself:
    /// then the kernel is asked how often they run.
    fn programs(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// What a probe saw while it was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Runs of its programs, where they can be told without a cost.
    pub hits: Option<u64>,
    /// Events that it lost.
    pub lost: u64,
    /// Further counts by name: `requests`, `bytes_written`.
    pub counts: BTreeMap<String, u64>,
}

/// Built-in probes that run in this process, as they are told what to do.
const IN_PROCESS: [&str; 4] = [
    "nothing",
    "stats",
    "event:KIND:EVENT:BODY",
    "busy:EVENT:NANOSECONDS",
];

/// What there is in the place of a built-in probe that there is not.
fn unknown(name: &str) -> anyhow::Error {
    let agents = agent::names();
    let all: Vec<&str> = IN_PROCESS.into_iter().chain(agents).collect();
    let near = suggest(name, all.iter().copied());
    anyhow!(
        "there is no built-in probe {name}{near}\n  There are builtin:{}",
        all.join(", builtin:")
    )
}

/// Refuses a probe that is seen not to be there, before anything is started for it.
pub(crate) fn there(spec: &Spec) -> Result<()> {
    match spec {
        Spec::BuiltIn { name, arguments } => match name.as_str() {
            "nothing" | "stats" => Ok(()),
            "event" => Counting::event(arguments).map(drop),
            "busy" => Counting::busy(arguments).map(drop),
            _ if agent::known(name) => Ok(()),
            _ => Err(unknown(name)),
        },
        Spec::Object { path, .. } if !path.is_file() => {
            bail!("there is no file {}", path.display())
        }
        Spec::Unit(name) => crate::restore::State::of_unit(name).map(drop),
        Spec::Command(command) | Spec::Process(command) => command::there(command),
        Spec::Joined(all) => all.iter().try_for_each(there),
        _ => Ok(()),
    }
}

/// Whether a probe, as it is written, looks at the processes of a server: all built-in agents do.
pub(crate) fn is_of_server(probe: &str) -> bool {
    fn of_server(spec: &Spec) -> bool {
        match spec {
            Spec::BuiltIn { name, .. } => agent::known(name),
            Spec::Joined(all) => all.iter().any(of_server),
            _ => false,
        }
    }
    probe.parse().is_ok_and(|spec| of_server(&spec))
}

/// Opens a probe for a running workload.
pub fn open(spec: &Spec, scene: &Scene) -> Result<Box<dyn Probe>> {
    Ok(match spec {
        Spec::BuiltIn { name, arguments } => match name.as_str() {
            "nothing" => Box::new(nothing::Nothing),
            "event" => Counting::event(arguments)?.load()?,
            "busy" => Counting::busy(arguments)?.load()?,
            "stats" => Box::new(stats::Stats::default()),
            _ if agent::known(name) => Box::new(agent::Remote::start(name, arguments)?),
            _ => return Err(unknown(name)),
        },
        Spec::Joined(all) => Box::new(joined::Joined::open(all, scene)?),
        Spec::Object { path, program } => {
            let file = path.display().to_string();
            let arguments: Vec<String> = [file].into_iter().chain(program.clone()).collect();
            Box::new(agent::Remote::start(agent::OBJECT, &arguments)?)
        }
        Spec::Unit(name) => Box::new(unit::Unit::open(name)?),
        Spec::Command(command) => Box::new(command::Tool::new(command, false)?),
        Spec::Process(command) => Box::new(command::Tool::new(command, true)?),
    })
}

/// What the kernel must have for a probe, as far as its name tells.
pub fn needs(spec: &Spec) -> Result<Vec<Feature>> {
    Ok(match spec {
        Spec::BuiltIn { name, arguments } => match name.as_str() {
            "event" => Counting::event(arguments)?.needs(),
            "busy" => Counting::busy(arguments)?.needs(),
            "l7" => agent::l7::needs(arguments)?,
            "syscount" => Syscount::needs(),
            _ => Vec::new(),
        },
        Spec::Joined(all) => {
            let needs: Result<Vec<_>> = all.iter().map(needs).collect();
            needs?.concat()
        }
        Spec::Object { .. } | Spec::Unit(_) | Spec::Command(_) | Spec::Process(_) => Vec::new(),
    })
}

/// Why this kernel has not what a built-in probe is for, where it hasn't.
pub fn absent(spec: &Spec) -> Result<Option<String>> {
    match spec {
        Spec::BuiltIn { name, arguments } if name == "event" => {
            Counting::event(arguments)?.absent()
        }
        Spec::BuiltIn { name, arguments } if name == "busy" => Counting::busy(arguments)?.absent(),
        Spec::Joined(all) => {
            let reasons: Result<Vec<_>> = all.iter().map(absent).collect();
            Ok(reasons?.into_iter().flatten().next())
        }
        _ => Ok(None),
    }
}
