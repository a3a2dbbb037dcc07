//! Errors of programs in processes.

use crate::{object, process, translate};

/// A result with the [`Error`] of probes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for which programs can't run in a process, or a map can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// A program's instructions.
    #[error("{program} can't run in user space: {source}\n  use a kernel uprobe for it")]
    Translate {
        /// The program.
        program: String,
        /// The reason.
        source: translate::Error,
    },
    /// The process.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The object has no such program.
    #[error("the object has no program {program}\n  it has: {}", names.join(", "))]
    NoProgram {
        /// The name that was asked for.
        program: String,
        /// The names that exist.
        names: Vec<String>,
    },
    /// The object has no such map.
    #[error("the object has no map {map}\n  it has: {}", names.join(", "))]
    NoMap {
        /// The name that was asked for.
        map: String,
        /// The names that exist.
        names: Vec<String>,
    },
    /// The map is of another kind than the one that is needed.
    #[error("the map {map} has no {what}: it is of the type {kind}")]
    WrongMap {
        /// The map.
        map: String,
        /// The type.
        kind: String,
        /// The missing part.
        what: &'static str,
    },
    /// A helper answered with an error.
    #[error("the map {map} can't be {what}: {source}")]
    Map {
        /// The map.
        map: String,
        /// The failed operation.
        what: &'static str,
        /// The error, as the kernel has it.
        source: std::io::Error,
    },
    /// Programs that call each other by tail calls take too much stack.
    #[error(
        "{program} can't run in user space: with its tail calls it may take {bytes} bytes of stack, and there are {most}\n  \
         make the tail calls in the main program, not in a function that it calls, or use a kernel uprobe"
    )]
    TailCallStack {
        /// The program.
        program: String,
        /// The bytes that it may take.
        bytes: u32,
        /// The most that a program may take.
        most: u32,
    },
    /// The threads' memory for maps is too small.
    #[error(
        "the map {map} needs {bytes} bytes in each thread, and {left} are left\n  lower its max_entries, or use a kernel uprobe"
    )]
    ThreadMemory {
        /// The map.
        map: String,
        /// The bytes that it needs.
        bytes: u64,
        /// The bytes that are left.
        left: u64,
    },
    /// An arena has one address in all processes, and another mapping of the process is there.
    #[error(
        "the arena {map} can't be mapped into process {pid}: {what} is at {address:#x}\n  try again: another address is chosen then; or use a kernel uprobe"
    )]
    ArenaTaken {
        /// The map.
        map: String,
        /// The process.
        pid: i32,
        /// The address.
        address: u64,
        /// The other mapping.
        what: String,
    },
    /// The process filters its system calls, and an arena needs some.
    #[error(
        "{program} uses the arena {map}, whose pages take system calls, and the seccomp filter of process {pid} may not let {call} pass\n  use a kernel uprobe for it"
    )]
    ArenaSeccomp {
        /// The program.
        program: String,
        /// The map.
        map: String,
        /// One of the calls.
        call: &'static str,
        /// The process.
        pid: i32,
    },
    /// A ring holds what no program writes.
    #[error(
        "the ring {map} of process {pid} holds no valid record\n  the process, or a probe, overwrote it: attach again"
    )]
    Ring {
        /// The map.
        map: String,
        /// The process.
        pid: i32,
    },
    /// The arguments of a USDT site.
    #[error(
        "the arguments of a USDT probe, {arguments}, can't be read: {reason}\n  the kernel's own probe reads no others"
    )]
    Usdt {
        /// The site's arguments.
        arguments: String,
        /// The reason.
        reason: String,
    },
    /// The process filters its system calls, and a helper makes some.
    #[error(
        "{program} calls {helper}, which makes system calls, and the seccomp filter of process {pid} may not let {call} pass\n  use a kernel uprobe for it"
    )]
    Seccomp {
        /// The program.
        program: String,
        /// The helper.
        helper: String,
        /// One of the calls.
        call: &'static str,
        /// The process.
        pid: i32,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl Error {
    pub(super) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Error::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
