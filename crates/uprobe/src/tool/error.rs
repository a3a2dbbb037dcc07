//! Errors of tools.

use std::io;

use crate::{object, probes};

/// A result with the [`Error`] of tools.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for which a tool can't be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command's file can't be executed.
    #[error(
        "{tool} can't be started: {source}\n  Name a command that is in PATH, or a program's file"
    )]
    Start {
        /// The command.
        tool: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No process can be started under a filter.
    #[error("{tool} can't be started under a filter of its system calls: {source}{}", advice(.source))]
    Filter {
        /// The command.
        tool: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No process can be started in a mount namespace in which tracefs is protected.
    #[error(
        "{tool} can't be kept from writing uprobes to tracefs, for which it needs a mount namespace of its own: {source}{}",
        advice(.source)
    )]
    Mounts {
        /// The command.
        tool: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Records can't be handed on.
    #[error("the records of the map {map} can't be handed to the tool: {source}")]
    Forward {
        /// The map.
        map: String,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A map of its.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// The processes that it probes.
    #[error(transparent)]
    Probes(#[from] probes::Error),
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Error::System { what, source }
    }
}

/// A line about what to do next.
fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "\n  Run it as root: it needs CAP_SYS_ADMIN, in a container also the permission to mount"
        }
        Some(libc::EINVAL) => {
            "\n  Its system calls can't be answered by another process here: that needs Linux 5.19"
        }
        Some(libc::EBUSY) => "\n  It runs under another supervisor already",
        _ => "",
    }
}
