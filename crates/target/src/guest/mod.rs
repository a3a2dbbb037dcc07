//! Runs in guests: the job that the host gives one, the messages that come back, and load and traces from the host.
//! ARCHITECTURE.md draws the exchange.
//!
//! Guest and host exchange messages only through the shared folder ([`HostChannel`]): a guest has no virtio console before
//! its modules, and its exit code says nothing. Inside, the same program runs the same plan as on the host.

mod boot;
mod channel;
mod hooks;
mod host_load;
mod host_tracer;
mod message;
mod recorder;
mod requests;
mod rescue;
mod wakeup;

pub use boot::Guest;
pub use bpfcost_guest::{
    Acceleration, Arch, GuestError, GuestLimit, GuestSpec, GuestWait, KvmSupport, PortForward,
    SHARED, Tools, await_host, first, join_host, launch, trouble,
};
pub use channel::{GuestChannel, HostChannel, Tail};
pub use hooks::{HOOKS, Hooks};
pub use host_load::HostLoad;
pub use host_tracer::HostTracer;
pub use message::{Failure, Job, LoadReply, Message, TraceOrder, TraceReply};
pub use requests::Requests;
pub use rescue::Rescue;
pub use rescue::rescue;
