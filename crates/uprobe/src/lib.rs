//! Runs ordinary `uprobe` BPF programs inside the probed process, without the kernel's trap.
//!
//! The kernel's verifier accepts or rejects a program, as always; then its instructions become machine code of the
//! probed process ([`translate`]), and functions of that process jump to it ([`process`]). A hit costs a few
//! nanoseconds.
//!
//! Begin with [`probes`]: it attaches the programs of a compiled [`object`] to a process, counts their runs, and reads
//! their maps.
//!
//! ```no_run
//! use bpfcost_uprobe::{
//!     object::LoadedObject,
//!     probes::{At, Place, Probes},
//!     process::Image,
//! };
//!
//! # fn main() -> Result<(), bpfcost_uprobe::probes::Error> {
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
//! # Guarantees
//!
//! - Each call of a probed function is counted, as a hit or as missed ([`process::Counts`]).
//! - The process gets no wrong value and does not die. In doubt, attaching is refused with the reason
//!   ([`process::Error`], [`probes::Error`]), and a call is missed.
//! - Functions are restored when the tool detaches, ends or is killed. Memory of the probes stays in the process.
//!
//! The exceptions are in the documentation of [`process`].

#[doc(hidden)]
pub mod fuzz;
pub mod mount;
pub mod object;
pub mod probes;
pub mod process;
pub mod tool;
pub mod translate;

/// The folder of libbpf's headers, for tests of other crates; none where this was built from a package.
#[doc(hidden)]
pub const LIBBPF_HEADERS: Option<&str> = option_env!("BPFCOST_LIBBPF_HEADERS");

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
