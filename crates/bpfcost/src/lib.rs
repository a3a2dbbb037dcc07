//! bpfcost: what does eBPF cost?
//!
//! One pipeline: an experiment ([`bpfcost_model`]) declares cases, [`bpfcost_measure`] runs them, a record
//! ([`bpfcost_record`]) keeps everything that was seen, and [`bpfcost_report`] shows it. Data flows one way. The
//! experiments themselves are in [`builtin`].

pub mod builtin;
pub mod cli;
#[doc(hidden)]
pub mod fuzz;
mod load;
pub mod probe;
pub mod process;
pub mod program;
mod reaper;
pub mod restore;
pub mod stack;
pub mod target;
mod top;
pub mod workload;
mod xdg;

#[cfg(test)]
#[path = "../../bpf/tests/require/mod.rs"]
mod require;
