//! Traces of the instructions that a machine executes, while it does something.

use std::fmt::Debug;

use anyhow::Result;

use super::span::{Trace, Watch};

/// Traces what a machine executes.
pub trait InstructionTracer: Debug {
    /// The events of programs, while `run` makes them.
    fn trace(&self, watch: &Watch, run: &mut dyn FnMut() -> Result<()>) -> Result<Trace>;
}
