//! A BPF object of the user's: loaded once an epoch, attached by its sections for a window, detached after it.

use std::path::Path;

use anyhow::Result;
use bpfcost_bpf::attach::Foreign;

use super::{Probe, Seen};
use crate::{experiment::Fault, workload::Scene};

#[derive(Debug)]
pub(super) struct Object {
    foreign: Foreign,
    programs: Vec<u32>,
}

impl Object {
    pub(super) fn load(path: &Path, program: Option<&str>) -> Result<Self> {
        let foreign = Foreign::load(path, program)?;
        let programs = foreign.ids()?;
        super::left::remember(&programs, &[]);
        Ok(Object { foreign, programs })
    }
}

impl Probe for Object {
    fn attach(&mut self, _scene: &Scene) -> Result<(), Fault> {
        let attached = self.foreign.attach();
        attached.map_err(|error| Fault::Broken(error.into()))
    }

    fn detach(&mut self) -> Result<Seen, Fault> {
        self.foreign.detach();
        Ok(Seen::default())
    }

    fn programs(&self) -> Vec<u32> {
        self.programs.clone()
    }
}
