//! Loads the programs of one attach type (`bpf/probe.bpf.c`), and reads what their runs counted.

use libbpf_rs::{
    ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::{Attach, Attachment, Body, BodyMaps, Events};
use crate::{
    error::Result,
    object::OwnedSkeleton,
    skel::probe::{ProbeSkel, ProbeSkelBuilder, types},
    stats::RunStats,
    timing::{fetch, store},
};

/// Programs of one attach type, one a body.
pub struct ProbePrograms {
    attach: Attach,
    skeleton: OwnedSkeleton<ProbeSkel<'static>>,
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
        let names: Vec<String> = bodies.iter().map(|&body| name(attach, body)).collect();
        let skeleton = OwnedSkeleton::new("probe", |storage| {
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
        })?;
        Ok(ProbePrograms { attach, skeleton })
    }

    /// How its programs are attached.
    pub fn attach(&self) -> Attach {
        self.attach
    }

    /// The program with that body.
    pub fn program(&self, body: Body) -> Result<ProgramMut<'_>> {
        self.skeleton.program(&name(self.attach, body))
    }

    /// Attaches the program with that body to a driver's events.
    pub fn attach_to(
        &mut self,
        events: &mut dyn Events,
        body: Body,
    ) -> Result<Box<dyn Attachment>> {
        let attached = events.attach(self.attach, &self.program(body)?)?;
        // Where it is attached to all functions, the hits of this one count.
        if let (Some(function), Some(bss)) = (attached.function(), self.bss()) {
            store(&mut bss.function, function);
        }
        Ok(attached)
    }

    /// Lets the counts begin again.
    pub fn forget(&mut self) {
        if let Some(bss) = self.bss() {
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
    }

    /// What runs left since then.
    pub fn seen(&self) -> ProbeCounts {
        let Some(bss) = self.skeleton.maps.bss_data.as_deref() else {
            return ProbeCounts::default();
        };
        ProbeCounts {
            hits: fetch(&bss.hits),
            drops: fetch(&bss.drops),
            errors: fetch(&bss.errors),
            stack_id: fetch(&bss.stack_id),
            other_hits: fetch(&bss.other_hits),
        }
    }

    /// What the kernel wrote down of a program's runs so far.
    pub fn run_stats(&self, body: Body) -> Result<RunStats> {
        RunStats::of(&self.program(body)?)
    }

    fn bss(&mut self) -> Option<&mut types::bss> {
        self.skeleton.maps.bss_data.as_deref_mut()
    }
}

fn name(attach: Attach, body: Body) -> String {
    format!(
        "{}__{}",
        attach.kind().name(),
        body.name().replace('-', "_")
    )
}
