//! Guests: other kernels in QEMU that run one program, this one.
//!
//! A guest takes QEMU and a kernel, and nothing else of the machine: this crate composes both command lines
//! ([`GuestSpec::compose`]) and an initramfs with this program in it, starts QEMU as a child process that ends with its
//! parent ([`Vm`]), and knows why a guest died by what its console says ([`Console`]). Inside, the program is the first
//! process ([`first()`]). Host and guest share one folder. The state of an emulated guest is saved when it has booted, and
//! later ones go on from there.
//!
//! The program that uses this crate offers two commands for it: `guest first [--host-files] [--traced] [nokaslr]`, which calls
//! [`first()`], and `guest launch PARENT -- COMMAND…`, which calls [`launch()`].

mod acceleration;
mod arch;
mod command;
mod console;
mod error;
mod first;
mod initramfs;
mod launch;
mod limit;
mod modules;
mod monitor;
mod program;
mod qemu;
mod snapshot;
mod spec;
mod state_clock;
mod tools;
mod tracer;
mod vm;

pub use acceleration::{Acceleration, KvmSupport};
pub use arch::Arch;
pub use command::{EXACT_KHZ, GuestCommand, MEMORY_MIB};
pub use console::{Console, trouble};
pub use error::GuestError;
pub use first::{BEFORE, NOW, READY, SHARED, await_host, first, join_host};
pub use launch::launch;
pub use limit::{GuestLimit, GuestWait};
pub use modules::module_needs;
pub use monitor::Monitor;
pub use program::IN_GUEST;
pub use spec::{GuestSpec, Kernel, PortForward};
pub use tools::Tools;
pub use tracer::{PIPE, Traced, TracerSwitch, end_recording, read_traced};
pub use vm::Vm;
