//! The probed process: stopped for a moment, given memory, patched, and restored.
//!
//! [`Image`] finds a [`Function`], [`Site`] where it can be probed; [`Runtime`] keeps memory and code in the process,
//! attaches programs to the function while all threads are [`Stopped`], and restores it.
//!
//! Not here yet:
//! - A tool that is killed while it attaches, between the first and the last system call that it has the process make,
//!   leaves a thread with wrong registers. Killed later, it leaves nothing: another process restores the functions.
//! - A probe that a signal handler leaves by longjmp keeps its frame: after three of them, the thread's probes are
//!   missed, and counted as such.
//! - Functions that leave by a jump to another one have no probe at their return, nor have those too short for both.
//! - Goroutines are not searched for addresses inside of the replaced bytes: Go doesn't stop them in prologues, but
//!   may before a RET.
//! - Probes at other places than entry and return; tracepoints (USDT).

mod area;
mod attachment;
mod error;
#[doc(hidden)]
pub mod fault;
mod image;
mod layout;
mod maps;
mod memory;
mod priority;
mod remote;
mod runtime;
mod server;
mod session;
mod share;
mod site;
mod stopped;
mod threads;
mod tracer;
mod trampoline;
mod wire;

pub use attachment::{Attachment, Hits, Prepared, Probe};
pub use error::{Error, Result};
pub use image::{Function, Image};
pub use maps::{Mapping, mappings};
pub use memory::Memory;
pub use remote::Remote;
pub use runtime::{Counts, Program, Runtime};
pub use session::Session;
pub use share::Shared;
pub use site::{Returns, Site, When};
pub use stopped::{Registers, Stopped, has_seccomp};
