//! Ways to attach a program to an event, and drivers that make the events.
//!
//! An attach type belongs to one [`Driver`]: the same events with nothing attached are its baseline.
//! [`ProbePrograms`] holds the loaded programs of an attach type, one a [`Body`]; [`Events`] makes the events of a
//! driver and attaches programs to them. What they measure and what is not in the number stands at the
//! head of `bpf/probe.bpf.c` and `bpf/driver.bpf.c`.

mod attach_method;
mod body;
mod buffers;
mod caller;
mod counter;
mod driver;
mod fault;
mod kernel;
mod maps;
mod net;
mod probe;
mod process_object;
mod shared_calls;
mod sites;
mod stopwatch;
mod types;
mod user;
mod user_object;
mod user_programs;

use libbpf_rs::{Link, ProgramMut};

pub use attach_method::AttachMethod;
pub(crate) use attach_method::{MethodAttachment, Toolbox};
pub use body::Body;
pub use bpfcost_uprobe::object::{PrintkOff, load_quietly};
pub use buffers::BufferCounts;
pub(crate) use buffers::Buffers;
pub use counter::{Counter, CounterBody, HitCounts};
pub use driver::{Attachment, BatchRequest, BatchResult, Driver, Events, Trouble};
pub use kernel::others::{attached_at, others};
pub(crate) use kernel::{
    explain, has_function, kprobe, multi, perf, read_lists, symbols, traceable_like, unfit,
};
pub use maps::BodyMaps;
pub(crate) use net::cgroup_root;
pub use probe::{ProbeCounts, ProbePrograms};
pub use process_object::{
    MapContents, ObjectCounts, ObjectEvent, ProcessCounts, ProcessObject, ProgramCounts, Report,
    Subjects,
};
pub use shared_calls::{SharedCalls, SharedCallsResult};
pub use sites::{LoadedSites, Mechanism, SiteCounts, Sites};
pub use types::Attach;
use types::ProgramKind;
pub use user::SiteCode;
pub use user_object::UserObject;
pub use user_programs::UserProgram;

use crate::error::{Result, failed};

/// Finds the number by which perf knows a tracepoint, `category:name`.
pub(crate) fn tracepoint_number(event: &str) -> Result<u64> {
    kernel::tracepoint_number(Attach::Tracepoint, event)
}

/// Attaches a program to a tracepoint, `category:name`.
pub(crate) fn tracepoint(program: &ProgramMut<'_>, event: &str) -> Result<Link> {
    let opened = kernel::open_tracepoint(Attach::Tracepoint, event)?;
    kernel::perf(program, opened).map_err(failed(event, "attaching to the tracepoint"))
}
