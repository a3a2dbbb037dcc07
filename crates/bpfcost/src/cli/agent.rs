//! `bpfcost agent` (hidden): the process of an agent.

use anyhow::Result;

use super::exit::Exit;
use bpfcost_probe::{agent, open_agent};

/// What this program does as a probe of its own.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which one.
    name: String,
    /// Its arguments.
    arguments: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<Exit> {
    agent::serve(|| open_agent(&args.name, &args.arguments))?;
    Ok(Exit::Done)
}
