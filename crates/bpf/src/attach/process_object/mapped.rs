//! Files that a process has mapped, while it may end, execute another program or unload a library.

use std::{fs, io::ErrorKind, path::PathBuf};

use bpfcost_uprobe::{
    probes,
    process::{self, Mapping},
};

use crate::error::Result;

/// A file: its device and its inode.
pub(super) type FileId = (String, u64);

pub(super) fn id(mapping: &Mapping) -> FileId {
    (mapping.device.clone(), mapping.inode)
}

/// The mapped file itself, also where its path leads to another one here.
pub(super) fn mapped(pid: i32, mapping: &Mapping) -> PathBuf {
    let Mapping { start, end, .. } = mapping;
    format!("/proc/{pid}/map_files/{start:x}-{end:x}").into()
}

/// Lists a process's mappings; none if it is gone.
pub(super) fn mappings_of(pid: i32) -> Result<Vec<Mapping>> {
    Ok(unless_gone(pid, process::mappings(pid))?.unwrap_or_default())
}

/// `None` where the process is gone, or has one of these mappings no more: a forked child that executes its own program
/// since, or a library that was unloaded.
pub(super) fn while_mapped<T>(
    pid: i32,
    used: &[&Mapping],
    result: process::Result<T>,
) -> Result<Option<T>> {
    if result.is_err() {
        let all = mappings_of(pid)?;
        let place = |one: &Mapping| (one.start, id(one));
        let is_there = |one: &&Mapping| all.iter().any(|other| place(other) == place(one));
        if !used.iter().all(is_there) {
            return Ok(None);
        }
    }
    unless_gone(pid, result)
}

/// `None` where the process is gone: it calls nothing any more. What fails then depends on what it was in.
pub(super) fn unless_gone<T>(pid: i32, result: process::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(process::Error::NoProcess { .. } | process::Error::Gone { .. }) => Ok(None),
        Err(_) if !has_program(pid) => Ok(None),
        Err(error) => Err(probes::Error::from(error).into()),
    }
}

/// Returns whether a process executes a program; not once it is gone, or a zombie. One that may not be looked at does.
pub(super) fn has_program(pid: i32) -> bool {
    match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_while_the_files_are_mapped() {
        let pid = std::process::id().cast_signed();
        let all = mappings_of(pid).expect("our own");
        let code = |one: &&Mapping| one.is_executable() && one.inode > 0;
        let here = all.iter().find(code).expect("our code");
        let failed = || Err::<(), _>(process::Error::Full { pid });
        assert!(while_mapped(pid, &[here], failed()).is_err());
        let mut moved = here.clone();
        moved.start += 1;
        let known = while_mapped(pid, &[here, &moved], failed());
        assert!(matches!(known, Ok(None)), "another program's, by now");
    }
}
