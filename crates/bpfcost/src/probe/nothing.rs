//! `builtin:nothing`: a probe that is none, for A/A runs. Whatever it is found to cost is false.

use anyhow::Result;

use super::{Probe, Seen};
use crate::{fault::Fault, workload::Scene};

#[derive(Debug)]
pub(super) struct Nothing;

impl Probe for Nothing {
    fn attach(&mut self, _scene: &Scene) -> Result<(), Fault> {
        Ok(())
    }

    fn detach(&mut self) -> Result<Seen, Fault> {
        Ok(Seen::default())
    }
}
