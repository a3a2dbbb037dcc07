//! Errors of probed processes: one line what happened, one what to do.

use std::{io, path::PathBuf};

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason for which a process, or one of its functions, can't be probed. The process is as it was before the call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such process, or it is a zombie.
    #[error("process {pid} does not exist\n  it may have exited; check the process ID")]
    NoProcess {
        /// The process.
        pid: i32,
    },
    /// The process exited, was killed, or runs another program now.
    #[error(
        "process {pid} exited, or started another program, while it was examined\n  start it again, then probe it"
    )]
    Gone {
        /// The process.
        pid: i32,
    },
    /// The kernel does not let this user trace the process.
    #[error(
        "no permission to trace process {pid}: {reason}\n  run as root, or with CAP_SYS_PTRACE (and CAP_DAC_OVERRIDE for another user's process)"
    )]
    Permission {
        /// The process.
        pid: i32,
        /// The rule that forbids it.
        reason: String,
    },
    /// A debugger, or another tool, traces the process.
    #[error(
        "process {pid} is already traced by process {tracer}\n  end that debugger or tracer first"
    )]
    Traced {
        /// The process.
        pid: i32,
        /// The tracer.
        tracer: i32,
    },
    /// The process that traces the probed one was killed while it held threads.
    #[error(
        "the tracer of process {pid}, a process of this program, was killed\n  check that process {pid} still works, then try again"
    )]
    TracerEnded {
        /// The process.
        pid: i32,
    },
    /// The process doesn't run 64-bit x86 code.
    #[error("process {pid} is not a 64-bit x86 process\n  use a kernel uprobe for it")]
    Architecture {
        /// The process.
        pid: i32,
    },
    /// The CPU or the kernel doesn't let programs use the FS and GS base registers.
    #[error(
        "user programs can't read the FS base here (no FSGSBASE)\n  use a kernel uprobe; Linux has FSGSBASE from 5.9"
    )]
    NoFsGsBase,
    /// The process filters its system calls, and the filter can't be suspended.
    #[error("process {pid} runs under seccomp, which can't be suspended: {source}\n  run as root")]
    Seccomp {
        /// The process.
        pid: i32,
        /// The kernel's reason for not suspending the filter.
        source: io::Error,
    },
    /// A thread did not stop.
    #[error(
        "thread {tid} of process {pid} did not stop\n  it may wait in the kernel (state D, or vfork); try again later"
    )]
    Unstoppable {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
    },
    /// The process keeps something of its own in the GS base register.
    #[error(
        "thread {tid} of process {pid} uses the GS base register itself\n  use a kernel uprobe for it"
    )]
    GsTaken {
        /// The process.
        pid: i32,
        /// The thread.
        tid: i32,
    },
    /// Threads share their thread-local storage, so they can't be told apart.
    #[error("two threads of process {pid} have the same FS base\n  use a kernel uprobe for it")]
    FsShared {
        /// The process.
        pid: i32,
    },
    /// Another process has the same memory (`CLONE_VM`), and executes the same code: it is not stopped while that changes.
    #[error(
        "process {pid} shares its memory with process {other} ({name}), which is no thread of it\n  wait until process {other} has ended, or use a kernel uprobe"
    )]
    MemoryShared {
        /// The process.
        pid: i32,
        /// The other process.
        other: i32,
        /// The name of its command.
        name: String,
    },
    /// A file that the process doesn't execute.
    #[error("process {pid} does not execute {}\n  check /proc/{pid}/maps for the files that it does", path.display())]
    NotMapped {
        /// The process.
        pid: i32,
        /// The file.
        path: PathBuf,
    },
    /// The process runs an older or newer file than the one under this name.
    #[error("{} is not the file that process {pid} runs\n  it was replaced since; restart the process", path.display())]
    Replaced {
        /// The process.
        pid: i32,
        /// The file.
        path: PathBuf,
    },
    /// A file that can't be read as ELF.
    #[error("{}: {reason}", path.display())]
    Elf {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        reason: String,
    },
    /// A symbol that isn't there.
    #[error("{} has no function {symbol}{}", path.display(), suggestion(nearest))]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The symbol.
        symbol: String,
        /// Names like it, the nearest first.
        nearest: Vec<String>,
    },
    /// A USDT probe that isn't there.
    #[error("{} has no USDT probe {probe}{}", path.display(), suggestion(nearest))]
    NoUsdt {
        /// The file.
        path: PathBuf,
        /// The probe: its provider and its name.
        probe: String,
        /// Probes like it, the nearest first.
        nearest: Vec<String>,
    },
    /// Several functions of one name.
    #[error("{} has {} functions {symbol}, at {}\n  give the address instead of the name", path.display(), addresses.len(), hex(addresses))]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The symbol.
        symbol: String,
        /// The virtual addresses, as the file has them.
        addresses: Vec<u64>,
    },
    /// A symbol that no probe can be placed at.
    #[error("{symbol}: {reason}")]
    Symbol {
        /// The symbol.
        symbol: String,
        /// The reason.
        reason: String,
    },
    /// The code isn't the file's: a breakpoint or another probe is in it.
    #[error(
        "{function}+{offset:#x} differs from the file: {found:02x} instead of {expected:02x}\n  another probe or debugger is there; remove it first"
    )]
    Changed {
        /// The function.
        function: String,
        /// The first byte that differs.
        offset: u64,
        /// The file's byte.
        expected: u8,
        /// The byte in memory.
        found: u8,
    },
    /// A function in which no probe can be placed.
    #[error("{function} can't be probed: {reason}\n  use a kernel uprobe for it")]
    Unpatchable {
        /// The function.
        function: String,
        /// The reason.
        reason: String,
    },
    /// A thread is always about to return to code that the patch would overwrite.
    #[error(
        "{function} can't be probed now: a signal handler of thread {tid} would return into the patched bytes\n  try again later"
    )]
    SavedAddress {
        /// The function.
        function: String,
        /// The thread.
        tid: i32,
    },
    /// No free addresses near the image.
    #[error(
        "process {pid} has no {size} free bytes within 2 GiB of the probed code\n  use a kernel uprobe for it"
    )]
    NoGap {
        /// The process.
        pid: i32,
        /// The number of bytes that were looked for.
        size: u64,
    },
    /// Memory that has one address in all processes, and another mapping is there.
    #[error(
        "{address:#x} of process {pid} is taken by {what}\n  try again, or use a kernel uprobe"
    )]
    AddressTaken {
        /// The process.
        pid: i32,
        /// The address.
        address: u64,
        /// The other mapping.
        what: String,
    },
    /// The code area is full.
    #[error(
        "process {pid} has no room left for more probe code\n  restart it, or use fewer probes"
    )]
    Full {
        /// The process.
        pid: i32,
    },
    /// The threads' memory for maps is taken.
    #[error(
        "a map needs {bytes} bytes in each thread of process {pid}, and there are {left}\n  lower the map's max_entries, or use a kernel uprobe"
    )]
    ThreadMemory {
        /// The process.
        pid: i32,
        /// The bytes that the map needs.
        bytes: u64,
        /// The bytes that are left.
        left: u64,
    },
    /// A system call that was made in the process failed.
    #[error("{call} in process {pid}: {source}")]
    Remote {
        /// The process.
        pid: i32,
        /// The system call.
        call: &'static str,
        /// The error.
        source: io::Error,
    },
    /// Something else that the system refused.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: String,
        /// The error.
        source: io::Error,
    },
    /// Machine code that is longer than there is memory for.
    #[error(
        "{what} needs {bytes} bytes of machine code, and {most} are the most\n  use a smaller program"
    )]
    TooLong {
        /// The purpose of the code.
        what: String,
        /// The bytes.
        bytes: usize,
        /// The most bytes that there may be.
        most: usize,
    },
    /// Machine code that could not be made.
    #[error(
        "no machine code for {what}: {reason}\n  this is a bug of the library: please report it"
    )]
    Code {
        /// The purpose of the code.
        what: String,
        /// The assembler's message.
        reason: String,
    },
}

impl Error {
    /// An error of the system, with what was tried.
    pub(super) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::System {
            what: what.into(),
            source: source.into(),
        }
    }
}

fn suggestion(nearest: &[String]) -> String {
    if nearest.is_empty() {
        return String::new();
    }
    format!("\n  did you mean {}?", nearest.join(", "))
}

fn hex(addresses: &[u64]) -> String {
    addresses
        .iter()
        .map(|address| format!("{address:#x}"))
        .collect::<Vec<_>>()
        .join(", ")
}
