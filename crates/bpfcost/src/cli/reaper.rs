//! `bpfcost reaper` (hidden): cleans up after a run, however that ended.

use anyhow::Result;

use super::exit::Exit;
use bpfcost_process::{reaper, restore};
use bpfcost_target::guest;

/// What this program does to clean up after itself.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Hear what is owed on standard input.
    #[arg(long, required = true)]
    stdin: bool,
}

pub(super) fn run(_args: &Args) -> Result<Exit> {
    reaper::serve(restore::put_back, guest::rescue);
    Ok(Exit::Done)
}
