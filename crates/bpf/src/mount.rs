//! Kernel file systems, opened without mounting them.

pub(crate) use bpfcost_uprobe::mount::MountedFs;

use crate::error::{Result, failed};

/// The kernel's file system of that type, e.g. `tracefs`.
pub(crate) fn open(kind: &'static str) -> Result<MountedFs> {
    MountedFs::ask(kind).map_err(failed(kind, "opening the file system"))
}
