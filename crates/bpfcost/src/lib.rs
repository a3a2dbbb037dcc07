//! bpfcost: what does eBPF cost?
//!
//! One pipeline: an experiment ([`bpfcost_model`]) declares cases, [`bpfcost_measure`] runs them, a record
//! ([`bpfcost_record`]) keeps everything that was seen, and [`bpfcost_report`] shows it. Data flows one way. The
//! experiments themselves are in [`builtin`].

pub mod builtin;
pub mod cli;
#[doc(hidden)]
pub mod fuzz;
pub mod stack;
mod top;

#[cfg(test)]
#[path = "../../bpf/tests/require/mod.rs"]
mod require;
