//! Guests: another kernel in QEMU, with this machine's root file system read-only and one shared folder that both
//! sides write. ARCHITECTURE.md draws the exchange between host and guest.
//!
//! virtme-ng composes the guest ([`GuestSpec`]). bpfcost starts QEMU itself, as its only child process ([`Guest`]), so
//! one process controls its end. Guest and host exchange messages only through the shared folder ([`HostChannel`]):
//! a guest without udev has no virtio console, and its exit code says nothing. Inside, the same program runs the
//! same plan as on the host.

mod acceleration;
mod boot;
mod channel;
mod command;
mod console;
mod error;
mod hooks;
mod host_load;
mod host_tracer;
mod launch;
mod limit;
mod message;
mod monitor;
mod qemu;
mod recorder;
mod requests;
mod rescue;
mod snapshot;
mod tools;

pub use acceleration::{Acceleration, KvmSupport};
pub use boot::Guest;
pub use channel::{GuestChannel, HostChannel, Tail};
pub use command::{EXACT_KHZ, GuestSpec};
pub use console::{Console, trouble};
pub use error::GuestError;
pub use hooks::{HOOKS, Hooks};
pub use host_load::HostLoad;
pub use host_tracer::HostTracer;
pub use launch::launch;
pub use message::{Failure, Job, LoadReply, Message, TraceOrder, TraceReply};
pub use requests::Requests;
pub use rescue::Rescue;
pub use rescue::rescue;
pub use tools::Tools;
