//! The built-in probes, by name.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow, bail};
use bpfcost_bpf::Space;

use super::{
    Arguments, BuiltIn, Probe, Runs,
    agent::{self, Agent, Remote},
    counting, nothing, stats,
};
use bpfcost_text::suggest;

/// All but those that were added.
const ALL: [BuiltIn; 8] = [
    nothing::PROBE,
    stats::PROBE,
    counting::EVENT,
    counting::BUSY,
    agent::l7::AGENT,
    agent::sslsniff::AGENT,
    agent::stack::AGENT,
    agent::syscount::AGENT,
];

/// Agents of programs that use this one as a library.
static ADDED: Mutex<Vec<BuiltIn>> = Mutex::new(Vec::new());

/// Adds one to those that this program has, before `bpfcost::cli::main` is called.
pub fn add(probe: BuiltIn) {
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    added.push(probe);
}

fn all() -> Vec<BuiltIn> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    [&ALL, &**added].concat()
}

/// The one of that name.
pub(super) fn find(name: &str) -> Result<BuiltIn> {
    let all = all();
    let entry = all.iter().find(|one| one.name() == name);
    entry.copied().ok_or_else(|| {
        let near = suggest(name, all.iter().map(BuiltIn::name));
        let forms: Vec<&str> = all.iter().map(|one| one.form).collect();
        anyhow!(
            "there is no built-in probe {name}{near}\n  Built-in probes: builtin:{}",
            forms.join(", builtin:")
        )
    })
}

pub(super) fn open(name: &str, arguments: &Arguments) -> Result<Box<dyn Probe>> {
    match find(name)?.runs {
        Runs::Here(open) => open(arguments),
        Runs::Agent(_) => Ok(Box::new(Remote::start(name, arguments)?)),
    }
}

/// Opens the agent of that name in this process: loads its programs.
pub fn open_agent(name: &str, arguments: &Arguments) -> Result<Box<dyn Agent>> {
    match name {
        agent::OBJECT => return agent::object::open(arguments, Space::Kernel),
        agent::PROCESS_OBJECT => return agent::object::open(arguments, Space::User),
        _ => {}
    }
    match find(name)?.runs {
        Runs::Agent(open) => open(arguments),
        Runs::Here(_) => bail!("builtin:{name} has no process of its own"),
    }
}
