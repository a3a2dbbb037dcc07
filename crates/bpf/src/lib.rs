//! BPF programs that time themselves, and the one place of bpfcost that speaks libbpf.
//!
//! [`timing`] is the Rust half of `bpf/timing.bpf.h`, open to outside programs too; [`timed`] opens any object
//! whose programs time themselves, by its name; [`lb`] is the
//! load-balancer datapath, [`ladder`] a set of known costs, [`attach`] every way to attach a program and
//! the events for it, [`hook`] people's programs at their own hooks, [`feature`] what the kernel has. What they measure and what is not in
//! the number stands at the head of each `bpf/*.bpf.c`.

mod agent_programs;
pub mod attach;
mod attachments;
mod cpu;
mod error;
pub mod feature;
#[doc(hidden)]
pub mod fuzz;
mod globals;
pub mod hook;
pub mod idle;
pub mod l7;
pub mod ladder;
pub mod lb;
mod links;
mod lockdown;
mod mapping;
mod maps;
mod mount;
#[cfg(feature = "mutants")]
mod mutant;
pub mod net;
mod object;
mod percpu;
mod plain;
pub mod program;
mod programs;
mod routine;
pub mod run;
mod shared;
mod space;
pub mod sslsniff;
pub mod stack;
pub mod stack_counter;
pub mod stack_tracer;
pub mod stats;
pub mod syscount;
mod table;
pub mod timed;
pub mod timing;
pub mod typed;
pub mod unwind;

pub use attachments::{Attachment, links, perf_events};
pub use cpu::{
    CpuPin, OutsideTime, allowed_cpus, current_cpu, preemptions, real_time, time_counter,
};
pub use error::{Error, Result};
pub use feature::Feature;
pub use programs::{
    LoadedMap, LoadedProgram, ProgramStats, loaded_maps, loaded_programs, maps_of, pins,
    program_stats, programs_held,
};
pub use space::Space;

/// Distinguishes builds of the BPF programs: a hash of their sources and their compiler.
pub const BUILD: &str = env!("BPFCOST_BPF_BUILD");

/// Version of the libbpf that is linked.
pub const LIBBPF_VERSION: &str = env!("BPFCOST_LIBBPF_VERSION");

#[cfg(test)]
#[path = "../tests/require/mod.rs"]
mod require;

/// The folder of libbpf's headers on the machine that built this, for tests that compile BPF C.
#[doc(hidden)]
pub const LIBBPF_HEADERS: &str = env!("BPFCOST_LIBBPF_HEADERS");

/// Objects of `bpf/` by name, for tests whose programs lie there.
#[doc(hidden)]
pub mod named {
    pub use crate::object::{NamedObject, OpenNamed};
}
