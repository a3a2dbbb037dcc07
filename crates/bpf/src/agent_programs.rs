//! The programs of an agent, in the kernel or in the processes that it watches: the same object, counts and records.

use bpfcost_uprobe::{
    object::Choice,
    probes::{Attached, Place, Probes},
};
use libbpf_rs::{Link, MapCore as _, RingBuffer};

use crate::{
    error::{Result, map_failed},
    links,
    object::{NamedObject, OpenNamed, load_for_processes},
    plain::{self, Plain},
};

/// What is given each record of a ring buffer.
type RecordTaker = Box<dyn FnMut(&[u8])>;

/// Loaded programs, and what they are attached to. Dropping them detaches them.
pub(crate) enum AgentPrograms {
    Kernel(KernelPrograms),
    Processes(ProcessPrograms),
}

/// Programs in the kernel.
pub(crate) struct KernelPrograms {
    /// Dropped before what they feed.
    pub(crate) links: Vec<Link>,
    ring: RingBuffer<'static>,
    events: &'static str,
    pub(crate) object: NamedObject,
}

pub(crate) struct ProcessPrograms {
    attached: Vec<Attached>,
    missed: u64,
    take: RecordTaker,
    events: &'static str,
    probes: Probes,
}

impl KernelPrograms {
    /// Loads an object; `take` is given each record of the ring buffer `events`, in [`AgentPrograms::take`].
    pub(crate) fn load(
        open: OpenNamed,
        events: &'static str,
        take: impl FnMut(&[u8]) + 'static,
    ) -> Result<Self> {
        let object = open.load()?;
        Ok(KernelPrograms {
            links: Vec::new(),
            ring: object.ring(events, take)?,
            events,
            object,
        })
    }
}

impl ProcessPrograms {
    /// The same of the object of `bpf/` with that name.
    pub(crate) fn load(
        name: &'static str,
        choice: &Choice<'_>,
        events: &'static str,
        take: impl FnMut(&[u8]) + 'static,
    ) -> Result<Self> {
        Ok(ProcessPrograms {
            attached: Vec::new(),
            missed: 0,
            take: Box::new(take),
            events,
            probes: load_for_processes(name, choice)?,
        })
    }

    /// Attaches programs to places in a process.
    pub(crate) fn attach(&mut self, process: u32, places: &[Place<'_>]) -> Result<()> {
        let attached = self.probes.attach(process.cast_signed(), places)?;
        self.attached.push(attached);
        Ok(())
    }

    fn detach(&mut self) -> Result<()> {
        for attached in self.attached.drain(..) {
            let hits = self.probes.detach(attached)?;
            self.missed += hits.entry.missed + hits.returns.missed;
        }
        Ok(())
    }
}

impl AgentPrograms {
    /// Detaches them from everything.
    pub(crate) fn detach(&mut self) -> Result<()> {
        match self {
            AgentPrograms::Kernel(programs) => {
                links::close(&mut programs.links);
                Ok(())
            }
            AgentPrograms::Processes(programs) => programs.detach(),
        }
    }

    /// Takes the records that are there. They come without waking anyone.
    pub(crate) fn take(&mut self) -> Result<()> {
        match self {
            AgentPrograms::Kernel(programs) => {
                let consumed = programs.ring.consume();
                consumed.map_err(map_failed(programs.events, "reading the ring buffer"))
            }
            AgentPrograms::Processes(programs) => {
                let take = &mut programs.take;
                Ok(programs
                    .probes
                    .consume(programs.events, |_, record| take(record))?)
            }
        }
    }

    /// What each CPU, or each thread, counted in the only entry of a map.
    pub(crate) fn counts<T: Plain + Default>(&self, map: &'static str) -> Result<Vec<T>> {
        match self {
            AgentPrograms::Kernel(programs) => programs.object.of_cpus(map),
            AgentPrograms::Processes(programs) => {
                let counts = programs.probes.map(map)?.of_threads(0)?;
                let counts = counts.iter().filter_map(|count| plain::read(count));
                Ok(counts.collect())
            }
        }
    }

    /// Calls that a probe in user space saw but could not run its program for, since they were loaded.
    pub(crate) fn missed(&self) -> u64 {
        let AgentPrograms::Processes(programs) = self else {
            return 0;
        };
        let hits = programs.attached.iter();
        let hits = hits.map(|attached| programs.probes.hits(attached));
        programs.missed
            + hits
                .map(|hits| hits.entry.missed + hits.returns.missed)
                .sum::<u64>()
    }

    /// Number of a map's keys.
    pub(crate) fn entries(&self, map: &'static str) -> Result<usize> {
        match self {
            AgentPrograms::Kernel(programs) => Ok(programs.object.map(map)?.keys().count()),
            AgentPrograms::Processes(programs) => Ok(programs.probes.map(map)?.entries()?.len()),
        }
    }

    /// Removes every entry of a map.
    pub(crate) fn empty(&self, map: &'static str) -> Result<()> {
        match self {
            AgentPrograms::Kernel(programs) => programs.object.empty(map),
            AgentPrograms::Processes(programs) => {
                let map = programs.probes.map(map)?;
                for (key, _) in map.entries()? {
                    map.delete(&key)?;
                }
                Ok(())
            }
        }
    }
}

impl Drop for ProcessPrograms {
    fn drop(&mut self) {
        // A process that is gone has nothing to restore.
        let _ = self.detach();
    }
}
