//! The programs of a compiled object in running processes, with the maps that they share.
//!
//! ```no_run
//! # fn main() -> Result<(), bpfcost_uprobe::probes::Error> {
//! use bpfcost_uprobe::{object::LoadedObject, probes::{At, Place, Probes}, process::Image};
//!
//! let mut probes = Probes::new(LoadedObject::open("count.bpf.o".as_ref())?)?;
//! let function = Image::of_program(1234)?.function("handle_request")?;
//! let place = Place { program: "count", function: &function, at: At::Entry, cookie: 0 };
//! let attached = probes.attach(1234, &[place])?;
//! // … the process works …
//! let hits = probes.detach(attached)?;
//! println!("{} runs, {} missed", hits.entry.hits, hits.entry.missed);
//! # Ok(())
//! # }
//! ```
//!
//! Arrays are the kernel's own pages, so that a program in the kernel and one in user space see each other's writes.
//! Hash tables and stacks are in memory that all processes of one [`Probes`] share; what the kernel has per CPU is per
//! thread, and a ring is of each process.

mod arena;
mod environment;
mod error;
mod helpers;
mod layout;
mod locks;
mod map;
mod own_helpers;
#[allow(
    clippy::module_inception,
    reason = "the type that the module is named for"
)]
mod probes;
mod ring;
mod shared_memory;
mod store;
mod table;
mod tail_calls;
mod target;
mod trace;
mod turns;
mod usdt;

pub use error::{Error, Result};
pub use map::Map;
pub use probes::{At, Attached, Place, Probes};
pub use trace::TraceLine;
