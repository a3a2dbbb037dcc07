//! `builtin:nothing`: an empty probe for A/A runs. Any cost found for it is false.

use super::{BuiltIn, Probe, WindowCounts};
use bpfcost_model::Fault;
use bpfcost_process::RunContext;

/// The entry of `builtin:nothing`.
pub(super) const PROBE: BuiltIn = BuiltIn::plain("nothing", |_| Ok(Box::new(Nothing)));

#[derive(Debug)]
struct Nothing;

impl Probe for Nothing {
    fn attach(&mut self, _scene: &RunContext) -> Result<(), Fault> {
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        Ok(WindowCounts::default())
    }
}
