//! A person's own loader, which fills the maps of a program before it runs.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use bpfcost_bpf::program::PinnedMaps;

use bpfcost_process::{ChildFailed, Process, describe_exit};
use bpfcost_program::LoaderCommand;

/// Environment variable that names the folder in which the maps are pinned.
const MAPS: &str = "BPFCOST_MAPS";
/// Longer than any guest may say nothing to its host.
const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

/// Has a loader work on the maps of loaded programs, and waits for its end. What it started ends with it.
pub(in crate::builtin) fn run(loader: &LoaderCommand, pinned: &PinnedMaps) -> Result<()> {
    let line = loader.command.join(" ");
    let folder = pinned.folder().display().to_string();
    let env = [(MAPS.to_owned(), folder)];
    // A guest may have no such folder.
    let home = Some(loader.folder.as_path()).filter(|folder| folder.is_dir());
    let home = home.unwrap_or(Path::new("/"));
    let mut process = Process::start_in(Some(home), &loader.command, &[], &env)
        .with_context(|| format!("--setup {line}"))?;
    let status = process
        .wait(loader.limit_s.map_or(NO_LIMIT, Duration::from_secs))
        .with_context(|| format!("--setup {line}"))?;
    if status.success() {
        return Ok(());
    }
    let printed = process.tail();
    Err(ChildFailed(format!(
        "--setup {line} {}:\n{printed}\n  It finds the maps in ${MAPS}. Try: --setup 'sh -c \"ls $BPFCOST_MAPS; false\"'",
        describe_exit(status)
    ))
    .into())
}
