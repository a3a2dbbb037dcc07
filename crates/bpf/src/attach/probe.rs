//! Loads the programs of one attach type (`bpf/probe.bpf.c`), and reads what their runs counted.

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use super::{
    Attach, Attachment, Body, BodyMaps, Events, ProgramKind,
    user_programs::{self, SharedProbes, UserProgram},
};
use crate::{
    Space,
    error::Result,
    object::OwnedSkeleton,
    skel::probe::{ProbeSkel, ProbeSkelBuilder, types},
    stats::RunStats,
    timing::{fetch, store},
};

/// Programs of one attach type, one a body.
pub struct ProbePrograms {
    attach: Attach,
    loaded: Loaded,
}

enum Loaded {
    /// One object for each attach type, whose programs were aimed at it.
    Kernel(Box<OwnedSkeleton<ProbeSkel<'static>>>),
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
            Space::Kernel => Loaded::Kernel(Box::new(skeleton(attach, bodies, maps)?)),
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
            Loaded::Kernel(skeleton) => {
                let attached = events.attach(self.attach, &skeleton.program(&name)?)?;
                // Where it is attached to all functions, the hits of this one count.
                if let (Some(function), Some(bss)) = (attached.function(), bss(skeleton)) {
                    store(&mut bss.function, function);
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
            Loaded::Kernel(skeleton) => {
                if let Some(bss) = bss(skeleton) {
                    for count in [
                        &mut bss.hits,
                        &mut bss.drops,
                        &mut bss.errors,
                        &mut bss.other_hits,
                    ] {
                        store(count, 0);
                    }
                    store(&mut bss.stack_id, -1);
                }
                Ok(())
            }
        }
    }

    /// Returns the counts that runs left since [`forget`](Self::forget).
    pub fn seen(&self) -> Result<ProbeCounts> {
        let skeleton = match &self.loaded {
            Loaded::User(probes) => return user_programs::seen(&probes.borrow()),
            Loaded::Kernel(skeleton) => skeleton,
        };
        let Some(bss) = skeleton.maps.bss_data.as_deref() else {
            return Ok(ProbeCounts::default());
        };
        Ok(ProbeCounts {
            hits: fetch(&bss.hits),
            drops: fetch(&bss.drops),
            errors: fetch(&bss.errors),
            stack_id: fetch(&bss.stack_id),
            other_hits: fetch(&bss.other_hits),
        })
    }

    /// Reads the kernel's statistics of a program's runs so far: none where they are in user space.
    pub fn run_stats(&self, body: Body) -> Result<RunStats> {
        match &self.loaded {
            Loaded::User(_) => Ok(RunStats::default()),
            Loaded::Kernel(skeleton) => {
                RunStats::read(&skeleton.program(&name(self.attach.kind(), body))?)
            }
        }
    }
}

fn skeleton(
    attach: Attach,
    bodies: &[Body],
    maps: &BodyMaps,
) -> Result<OwnedSkeleton<ProbeSkel<'static>>> {
    let names: Vec<String> = bodies
        .iter()
        .map(|&body| name(attach.kind(), body))
        .collect();
    OwnedSkeleton::new("probe", |storage| {
        let mut open = ProbeSkelBuilder::default().open(storage)?;
        maps.lend(&mut open)?;
        for mut program in open.open_object_mut().progs_mut() {
            let chosen = names.iter().any(|name| program.name() == name.as_str());
            program.set_autoload(chosen);
            if chosen {
                attach.aim(&mut program)?;
            }
        }
        open.load()
    })
}

fn bss<'a>(skeleton: &'a mut OwnedSkeleton<ProbeSkel<'static>>) -> Option<&'a mut types::bss> {
    skeleton.maps.bss_data.as_deref_mut()
}

/// A program's name in `bpf/probe.bpf.c`.
pub(super) fn name(kind: ProgramKind, body: Body) -> String {
    format!("{}__{}", kind.name(), body.name().replace('-', "_"))
}
