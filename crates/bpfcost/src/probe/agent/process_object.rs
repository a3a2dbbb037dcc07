//! A user's BPF object whose programs run in the server's processes: loaded once per epoch, attached for a window to the
//! processes that there are then. Its ring buffers are read and discarded here, as those of an object in the kernel.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use anyhow::Result;
use bpfcost_bpf::attach::{BufferCounts, ProcessObject};

use super::{Agent, AgentInfo, EVERY, object::file};
use crate::{probe::WindowCounts, process::RunContext};

struct ProcessObjectAgent {
    object: ProcessObject,
    /// What was taken when it was attached.
    before: BufferCounts,
}

/// Loads the object of that file, or the one program of it that is named.
pub(in crate::probe) fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (path, program) = file(arguments)?;
    Ok(Box::new(ProcessObjectAgent {
        object: ProcessObject::load(path, program)?,
        before: BufferCounts::default(),
    }))
}

impl Agent for ProcessObjectAgent {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        self.before = self.object.take()?;
        Ok(self.object.attach(&context.pids)?)
    }

    fn consume(&mut self, patience: Duration) -> Result<()> {
        self.object.take()?;
        sleep(patience.min(EVERY));
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        let counts = self.object.detach()?;
        let taken = self.object.take()?;
        let records = taken.records - self.before.records;
        let named = self
            .object
            .has_buffers()
            .then(|| ("records".to_owned(), records));
        Ok(WindowCounts {
            hits: Some(counts.hits),
            lost: counts.missed + taken.lost - self.before.lost,
            counts: BTreeMap::from_iter(named),
        })
    }

    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo {
            programs: Vec::new(),
            idle: !self.object.has_buffers(),
        })
    }
}
