//! Loads the programs of one attach type (`bpf/probe.bpf.c`), and reads what their runs counted.

use super::{
    Attach, Attachment, Body, BodyMaps, Events, ProgramKind,
    user_programs::{self, SharedProbes, UserProgram},
};
use crate::{
    Space,
    error::Result,
    object::{NamedObject, OpenNamed},
    stats::RunStats,
};

/// Programs of one attach type, one a body.
pub struct ProbePrograms {
    attach: Attach,
    loaded: Loaded,
}

enum Loaded {
    /// One object for each attach type, whose programs were aimed at it.
    Kernel(Box<NamedObject>),
    /// The one of all types.
    User(SharedProbes),
}

/// Counts of a program's runs, since they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    /// Runs of the body.
    pub hits: u64,
    /// Events that the ring buffer had no room for.
    pub drops: u64,
    /// Refusals of a helper.
    pub errors: u64,
    /// The number of the last stack; negative where none was taken.
    pub stack_id: i64,
    /// Runs for other functions than the one asked for, where a type is attached to all.
    pub other_hits: u64,
}

impl ProbePrograms {
    /// Loads the programs with these bodies.
    pub fn load(attach: Attach, bodies: &[Body], maps: &BodyMaps) -> Result<Self> {
        let loaded = match attach.space() {
            Space::Kernel => Loaded::Kernel(Box::new(load(attach, bodies, maps)?)),
            Space::User => Loaded::User(maps.user_programs().load()?),
        };
        Ok(ProbePrograms { attach, loaded })
    }

    /// The attach type of the programs.
    pub fn attach(&self) -> Attach {
        self.attach
    }

    /// Attaches the program with that body to a driver's events.
    pub fn attach_to(
        &mut self,
        events: &mut dyn Events,
        body: Body,
    ) -> Result<Box<dyn Attachment>> {
        let name = name(self.attach.kind(), body);
        match &mut self.loaded {
            Loaded::Kernel(object) => {
                let attached = events.attach(self.attach, &object.program(&name)?)?;
                // Where it is attached to all functions, the hits of this one count.
                if let Some(function) = attached.function() {
                    object.globals.set("function", function)?;
                }
                Ok(attached)
            }
            Loaded::User(probes) => {
                let name = &name;
                events.attach_inside(self.attach, &UserProgram { probes, name })
            }
        }
    }

    /// Lets the counts begin again.
    pub fn forget(&mut self) -> Result<()> {
        match &mut self.loaded {
            Loaded::User(probes) => user_programs::forget(&probes.borrow()),
            Loaded::Kernel(object) => {
                for count in ["hits", "drops", "errors", "other_hits"] {
                    object.globals.set(count, 0)?;
                }
                object.globals.set("stack_id", u64::MAX)
            }
        }
    }

    /// Returns the counts that runs left since [`forget`](Self::forget).
    pub fn seen(&self) -> Result<ProbeCounts> {
        let globals = match &self.loaded {
            Loaded::User(probes) => return user_programs::seen(&probes.borrow()),
            Loaded::Kernel(object) => &object.globals,
        };
        Ok(ProbeCounts {
            hits: globals.get("hits")?,
            drops: globals.get("drops")?,
            errors: globals.get("errors")?,
            stack_id: globals.get("stack_id")?.cast_signed(),
            other_hits: globals.get("other_hits")?,
        })
    }

    /// Reads the kernel's statistics of a program's runs so far: none where they are in user space.
    pub fn run_stats(&self, body: Body) -> Result<RunStats> {
        match &self.loaded {
            Loaded::User(_) => Ok(RunStats::default()),
            Loaded::Kernel(object) => {
                RunStats::read(&object.program(&name(self.attach.kind(), body))?)
            }
        }
    }
}

fn load(attach: Attach, bodies: &[Body], maps: &BodyMaps) -> Result<NamedObject> {
    let mut open = OpenNamed::open("probe")?;
    maps.lend(&mut open)?;
    for &body in bodies {
        let name = name(attach.kind(), body);
        open.with(&name)?;
        open.change_program(&name, |program| attach.aim(program))?;
    }
    open.load()
}

/// A program's name in `bpf/probe.bpf.c`.
pub(super) fn name(kind: ProgramKind, body: Body) -> String {
    format!("{}__{}", kind.name(), body.name().replace('-', "_"))
}
