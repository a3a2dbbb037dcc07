//! `bpfcost guard`, hidden: what this program does to clean up after itself, however it ended.

use anyhow::Result;

use super::exit::Exit;
use crate::{guard, restore};

/// What this program does to clean up after itself.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Hear what is owed on standard input.
    #[arg(long, required = true)]
    stdin: bool,
}

pub(super) fn run(_args: &Args) -> Result<Exit> {
    guard::serve(restore::put_back);
    Ok(Exit::Done)
}
