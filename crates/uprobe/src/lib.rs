//! Runs ordinary `uprobe` BPF programs inside the probed process, without the kernel's trap.
//!
//! The kernel's verifier accepts or rejects a program, as always; then its instructions become machine code of the
//! probed process ([`translate`]), and functions of that process jump to it ([`process`]).

#[doc(hidden)]
pub mod fuzz;
pub mod mount;
pub mod object;
pub mod probes;
pub mod process;
pub mod translate;
