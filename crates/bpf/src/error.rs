//! The crate's one error type.

use std::{io, path::PathBuf};

use rustix::io::Errno;

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error between here and the kernel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel rejected one of the object's maps or programs.
    #[error("the kernel rejected {object}: {source}{}", tail(.log))]
    Load {
        /// The object's name, e.g. `xdp_lb`.
        object: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
        /// The last lines that libbpf and the verifier said.
        log: String,
    },
    /// A user's object can't be loaded or attached.
    #[error("{}: {words}", path.display())]
    UserObject {
        /// The object's file.
        path: PathBuf,
        /// The reason, and what can be done; the last lines that libbpf and the verifier said.
        words: String,
        /// True where the file is wrong on every kernel: no object, or nothing in it that could be attached.
        is_input: bool,
    },
    /// The kernel refused something.
    #[error("{what}: {action}: {source:#}")]
    Failed {
        /// The attach type, map, program or other thing that it is about.
        what: String,
        /// The step that was tried.
        action: &'static str,
        /// The kernel's answer.
        source: libbpf_rs::Error,
    },
    /// A program could not be attached, for a reason that is known.
    #[error("{attach}: {words}")]
    Unattachable {
        /// The attach type.
        attach: &'static str,
        /// The reason, and what can be done.
        words: String,
    },
    /// A program was asked for that is not part of what was loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// A program can't run in user space, or not in that process.
    #[error(transparent)]
    User(#[from] bpfcost_uprobe::probes::Error),
    /// A request that can't be met: the reason, and what can be done.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Returns true if what was given is wrong on every machine: a file that is no object, or an object that can't be
    /// attached, or not run in user space.
    pub fn is_input(&self) -> bool {
        use bpfcost_uprobe::{object, probes, process};
        match self {
            Error::UserObject { is_input, .. } => *is_input,
            Error::User(error) => matches!(
                error,
                probes::Error::Process(process::Error::Elf { .. })
                    | probes::Error::Object(
                        object::Error::Open { .. } | object::Error::Arena { .. }
                    )
                    | probes::Error::Translate { .. }
                    | probes::Error::TailCallStack { .. }
                    | probes::Error::Usdt { .. }
                    | probes::Error::NoProgram { .. }
                    | probes::Error::NoMap { .. }
                    | probes::Error::WrongMap { .. }
            ),
            _ => false,
        }
    }

    /// Returns true if a process ended that programs were to run in.
    pub fn is_of_ended_process(&self) -> bool {
        use bpfcost_uprobe::{probes, process};
        matches!(
            self,
            Error::User(probes::Error::Process(
                process::Error::NoProcess { .. } | process::Error::Gone { .. }
            ))
        )
    }
}

/// An answer of the kernel, as [`Error::Failed`] holds it.
pub(crate) trait IntoSource {
    fn into_source(self) -> libbpf_rs::Error;
}

impl IntoSource for libbpf_rs::Error {
    fn into_source(self) -> libbpf_rs::Error {
        self
    }
}

impl IntoSource for io::Error {
    fn into_source(self) -> libbpf_rs::Error {
        self.into()
    }
}

impl IntoSource for Errno {
    fn into_source(self) -> libbpf_rs::Error {
        libbpf_rs::Error::from_raw_os_error(self.raw_os_error())
    }
}

impl IntoSource for nix::errno::Errno {
    fn into_source(self) -> libbpf_rs::Error {
        io::Error::from(self).into()
    }
}

/// Makes an answer an [`Error::Failed`] about `what`, with the `action` that was tried.
pub(crate) fn failed<E: IntoSource>(
    what: impl Into<String>,
    action: &'static str,
) -> impl FnOnce(E) -> Error {
    move |answer| Error::Failed {
        what: what.into(),
        action,
        source: answer.into_source(),
    }
}

/// The same of a map.
pub(crate) fn map_failed<E: IntoSource>(
    map: &'static str,
    action: &'static str,
) -> impl FnOnce(E) -> Error {
    move |answer| failed(format!("map {map}"), action)(answer)
}

/// A program could not be attached in this way, for a reason that is known.
pub(crate) fn unattachable(attach: &'static str, words: impl Into<String>) -> Error {
    let words = words.into();
    Error::Unattachable { attach, words }
}

/// An object has no global variables, where those of timing.bpf.h should be.
pub(crate) fn no_area(object: &str) -> Error {
    Error::Refused(format!(
        "{object} has no global variables to time with; it was built without timing.bpf.h"
    ))
}

/// An object does not define something, e.g. `map flow_table`.
pub(crate) fn lacks(object: &str, what: &str) -> Error {
    Error::Refused(format!("{object} has no {what}"))
}

/// A CPU's number is beyond what programs keep samples for.
pub(crate) fn cpu_number(cpu: u32, most: u32) -> Error {
    Error::Refused(format!(
        "CPU {cpu} is beyond the {most} CPUs that this program can time"
    ))
}

fn tail(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!("\n{log}")
    }
}
