//! Errors of guests: what, why, the guest's last words, and what to do.

use std::{io, path::Path};

use thiserror::Error;

/// A guest can't be started, or did not come to its end.
#[derive(Debug, Error)]
pub enum GuestError {
    /// Something that guests need is not there, or not as it has to be: what, and what to do.
    #[error("{0}")]
    Lacking(String),
    /// A file or process of the guest can't be made.
    #[error("{doing} failed: {source}")]
    Io {
        /// The step that was under way.
        doing: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The guest ended, or its kernel gave up: with the last words on its console.
    #[error("{0}")]
    Dead(String),
}

impl GuestError {
    /// From an error of the system, with what was under way.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> GuestError {
        let doing = doing.into();
        move |source| GuestError::Io { doing, source }
    }

    /// The scratch folder is full.
    pub fn no_room(folder: &Path) -> GuestError {
        GuestError::Lacking(format!(
            "no space is left in {} for the guest's output\n  Make room there, or use another \
             folder: TMPDIR=DIR",
            folder.display()
        ))
    }

    /// Something else killed QEMU.
    pub fn killed(kernel: &str) -> GuestError {
        GuestError::Lacking(format!(
            "the guest ({kernel}) ended: something killed its QEMU (SIGKILL)\n  The kernel does so where the machine or a \
             control group lacks memory: see `dmesg`, and make room there"
        ))
    }
}
