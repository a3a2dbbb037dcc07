//! A user's BPF object: loaded once per epoch, attached by its sections for a window, then detached: in the kernel, or in
//! the server's processes. Its ring and perf buffers are read and discarded here: its own tool would read them too, and
//! that is part of its cost.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, Result, bail};
use bpfcost_bpf::{
    Space,
    attach::{BufferCounts, ProcessCounts, ProcessObject, UserObject},
};

use rustix::process::getppid;

use super::{Agent, AgentInfo, READ_INTERVAL};
use crate::WindowCounts;
use bpfcost_process::{RunContext, allow_files, process_tree};

struct ObjectAgent {
    object: Loaded,
    /// The process that started this one.
    tool: u32,
    /// Counts of the buffers when it was attached.
    before: BufferCounts,
}

/// A loaded object, by where its programs run.
enum Loaded {
    Kernel(UserObject),
    Processes(Box<ProcessObject>),
}

/// Loads the object of that file, or the one program of it that is named.
pub(crate) fn open(arguments: &[String], space: Space) -> Result<Box<dyn Agent>> {
    let (path, program): (&Path, _) = match arguments {
        [path] => (path.as_ref(), None),
        [path, program] => (path.as_ref(), Some(program.as_str())),
        _ => bail!("write FILE.bpf.o or FILE.bpf.o:PROGRAM"),
    };
    // There are some for each probed process.
    allow_files()?;
    let object = match space {
        Space::Kernel => Loaded::Kernel(UserObject::load(path, program)?),
        Space::User => Loaded::Processes(Box::new(ProcessObject::load(path, program)?)),
    };
    let tool = getppid().context("the tool has ended")?;
    Ok(Box::new(ObjectAgent {
        object,
        tool: tool.as_raw_nonzero().get().cast_unsigned(),
        before: BufferCounts::default(),
    }))
}

impl Loaded {
    fn has_buffers(&self) -> bool {
        match self {
            Loaded::Kernel(object) => object.has_buffers(),
            Loaded::Processes(object) => object.has_buffers(),
        }
    }

    fn take(&mut self) -> bpfcost_bpf::Result<BufferCounts> {
        match self {
            Loaded::Kernel(object) => object.take(),
            Loaded::Processes(object) => object.take(),
        }
    }
}

impl Agent for ObjectAgent {
    fn attach(&mut self, context: &RunContext) -> Result<()> {
        self.before = self.object.take()?;
        match &mut self.object {
            Loaded::Kernel(object) => object.attach()?,
            Loaded::Processes(object) if context.pids.is_empty() => {
                // There is no server, but a command, which the tool starts.
                object.attach(&[self.tool], Vec::new)?;
            }
            Loaded::Processes(object) => {
                let family = || {
                    context
                        .pids
                        .iter()
                        .copied()
                        .flat_map(process_tree)
                        .collect()
                };
                object.attach(&context.pids, family)?;
            }
        }
        Ok(())
    }

    fn consume(&mut self, timeout: Duration) -> Result<()> {
        match &mut self.object {
            Loaded::Kernel(object) => object.wait(timeout)?,
            Loaded::Processes(object) => {
                object.take()?;
                let has_buffers = object.has_buffers();
                object.wait(if has_buffers {
                    timeout.min(READ_INTERVAL)
                } else {
                    timeout
                })?;
            }
        }
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts> {
        // The kernel is asked how often programs ran there.
        let (hits, missed) = match &mut self.object {
            Loaded::Kernel(object) => {
                object.detach();
                (None, 0)
            }
            Loaded::Processes(object) => {
                let ProcessCounts { hits, missed } = object.detach()?;
                (Some(hits), missed)
            }
        };
        let taken = self.object.take()?;
        let records = taken.records - self.before.records;
        let has_buffers = self.object.has_buffers();
        Ok(WindowCounts {
            hits,
            lost: missed + taken.lost - self.before.lost,
            counts: BTreeMap::from_iter(has_buffers.then(|| ("records".to_owned(), records))),
        })
    }

    fn loaded(&self) -> Result<AgentInfo> {
        Ok(AgentInfo {
            programs: match &self.object {
                Loaded::Kernel(object) => object.ids()?,
                Loaded::Processes(_) => Vec::new(),
            },
            // Processes that start wait for it.
            idle: matches!(self.object, Loaded::Kernel(_)) && !self.object.has_buffers(),
        })
    }
}
