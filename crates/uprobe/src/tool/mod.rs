//! Tracing tools as they are, with their uprobe programs in user space.
//!
//! [`Tool`] starts a command whose calls of `bpf`, `perf_event_open` and `ioctl` wait for an answer of this process
//! (`seccomp_unotify(2)`). Nearly all go on to the kernel. The exceptions:
//!
//! - An event of a uprobe is one of a file that no process executes: the tool has a real event, and a real link to it, and
//!   the kernel has no trap. The program runs in the process instead, before the tool hears that it is attached.
//! - A program's instructions are those that the tool gave to the kernel, which proves it by the program's tag.
//! - Arrays are mappable, so that both sides have the kernel's own pages.
//! - Hash tables and stacks of those programs are in user space: the tool's commands for them are answered from there.
//! - Records are written to the tool's own ring buffer or perf buffers, by a program in the kernel.
//! - tracefs, by which a tool could make uprobes of the kernel itself, is read-only there, in a mount namespace of the tool's own.
//!
//! A program that can't run in user space is an error of the call that would attach it (`EOPNOTSUPP`), with the reason in a
//! [`ToolEvent`].

mod call;
mod caller;
mod decoy;
mod error;
mod filter;
mod forward;
mod maps;
mod notify;
mod place;
mod processes;
mod program;
mod running;
mod serve;
mod start;
#[allow(
    clippy::module_inception,
    reason = "the type that the module is named for"
)]
mod tool;
mod tracefs;

pub use error::{Error, Result};
pub use tool::{Tool, ToolCounts, ToolEvent};
