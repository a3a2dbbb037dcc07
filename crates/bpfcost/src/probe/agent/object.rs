//! A BPF object of the user's: loaded once an epoch, attached by its sections for a window, detached after it. What
//! it writes into ring and perf buffers is read here and thrown away, for whoever runs it reads it too, and that
//! is part of its cost.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, bail};
use bpfcost_bpf::attach::{Foreign, Taken};

use super::{Agent, Loaded};
use crate::{probe::Seen, process::RunContext};

struct Object {
    foreign: Foreign,
    /// What was taken when it was attached.
    before: Taken,
}

/// Loads the object of that file, or the one program of it that is named.
pub(in crate::probe) fn open(arguments: &[String]) -> Result<Box<dyn Agent>> {
    let (path, program) = match arguments {
        [path] => (path, None),
        [path, program] => (path, Some(program.as_str())),
        _ => bail!("it takes a file, and the name of a program"),
    };
    Ok(Box::new(Object {
        foreign: Foreign::load(path.as_ref(), program)?,
        before: Taken::default(),
    }))
}

impl Agent for Object {
    fn attach(&mut self, _scene: &RunContext) -> Result<()> {
        self.before = self.foreign.take()?;
        Ok(self.foreign.attach()?)
    }

    fn consume(&mut self, patience: Duration) -> Result<()> {
        Ok(self.foreign.wait(patience)?)
    }

    fn detach(&mut self) -> Result<Seen> {
        self.foreign.detach();
        let taken = self.foreign.take()?;
        let records = taken.records - self.before.records;
        let counts = self
            .foreign
            .has_buffers()
            .then(|| ("records".to_owned(), records));
        Ok(Seen {
            hits: None,
            lost: taken.lost - self.before.lost,
            counts: BTreeMap::from_iter(counts),
        })
    }

    fn loaded(&self) -> Result<Loaded> {
        Ok(Loaded {
            programs: self.foreign.ids()?,
            idle: !self.foreign.has_buffers(),
        })
    }
}
