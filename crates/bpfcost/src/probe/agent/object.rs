//! A user's BPF object: loaded once per epoch, attached by its sections for a window, then detached. Its ring and
//! perf buffers are read and discarded here: its own tool would read them too, and that is part of its cost.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Result, bail};
use bpfcost_bpf::attach::{BufferCounts, UserObject};

use super::{Agent, AgentInfo};
use crate::{probe::WindowCounts, process::RunContext};

struct ObjectAgent {
    object: UserObject,
    /// What was taken when it was attached.
    before: BufferCounts,
}

/// Loads the object of that file, or the one program of it that is named.
pub(in crate::probe) fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (path, program) = file(arguments)?;
    Ok(Box::new(ObjectAgent {
        object: UserObject::load(path, program)?,
        before: BufferCounts::default(),
    }))
}

/// The object's file, and the one program of it that is named.
pub(super) fn file(arguments: &[String]) -> Result<(&Path, Option<&str>)> {
    match arguments {
        [path] => Ok((path.as_ref(), None)),
        [path, program] => Ok((path.as_ref(), Some(program.as_str()))),
        _ => bail!("write FILE.bpf.o or FILE.bpf.o:PROGRAM"),
    }
}

impl Agent for ObjectAgent {
    fn attach(&mut self, _scene: &RunContext) -> Result<()> {
        self.before = self.object.take()?;
        Ok(self.object.attach()?)
    }

    fn consume(&mut self, patience: Duration) -> Result<()> {
        Ok(self.object.wait(patience)?)
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        self.object.detach();
        let taken = self.object.take()?;
        let records = taken.records - self.before.records;
        let counts = self
            .object
            .has_buffers()
            .then(|| ("records".to_owned(), records));
        Ok(WindowCounts {
            hits: None,
            lost: taken.lost - self.before.lost,
            counts: BTreeMap::from_iter(counts),
        })
    }

    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo {
            programs: self.object.ids()?,
            idle: !self.object.has_buffers(),
        })
    }
}
