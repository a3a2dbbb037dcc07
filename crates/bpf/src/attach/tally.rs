//! A tally: a program that counts the calls of a function that many threads are in at once, and what the
//! kernel says of the calls that it missed.

use libbpf_rs::{
    Link, MapCore as _, MapFlags, ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::{
    Attach,
    kernel::{self, Event},
};
use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    feature::{self, Feature, Version},
    object::Owned,
    plain, run,
    skel::tally::{TallySkel, TallySkelBuilder},
    stats::RunStats,
};

/// The kernel that first tells what a link to many functions missed (3acf8ace6823).
const LINKS_TELL: Version = Version((6, 7));

/// How a tally is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a kprobe at the function's entry.
    Kprobe,
    /// By a kretprobe.
    Kretprobe {
        /// Instances that it holds ready: as many calls can be inside at once, 1 to 4096.
        maxactive: u32,
    },
    /// By an fprobe on the function's return.
    KretprobeMulti,
    /// By a trampoline around the function.
    Fexit,
}

impl How {
    /// As an attach type.
    pub fn attach(self) -> Attach {
        match self {
            How::Kprobe => Attach::Kprobe,
            How::Kretprobe { .. } => Attach::Kretprobe,
            How::KretprobeMulti => Attach::KretprobeMulti,
            How::Fexit => Attach::Fexit,
        }
    }

    /// What the kernel must have, what tells most of it first.
    pub fn needs(self) -> &'static [Feature] {
        match self {
            How::Kprobe | How::Kretprobe { .. } => {
                &[Feature::Kprobe, Feature::Tracefs, Feature::SyscallProgram]
            }
            How::KretprobeMulti => &[Feature::KprobeMulti, Feature::SyscallProgram],
            How::Fexit => &[Feature::Fexit, Feature::SyscallProgram],
        }
    }

    fn program(self) -> &'static str {
        match self {
            How::Kprobe | How::Kretprobe { .. } => "tally_kprobe",
            How::KretprobeMulti => "tally_multi",
            How::Fexit => "tally_tracing",
        }
    }
}

/// Calls that were counted since a tally was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of this process.
    pub hits: u64,
    /// Of others.
    pub strangers: u64,
    /// Anyone's that the kernel says were missed; `None` where it doesn't say.
    pub missed: Option<u64>,
}

impl Counts {
    /// What was added since `before`.
    pub fn since(self, before: Self) -> Self {
        Counts {
            hits: self.hits.saturating_sub(before.hits),
            strangers: self.strangers.saturating_sub(before.strangers),
            missed: self
                .missed
                .zip(before.missed)
                .map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// A program that is attached, and counts. Dropping it detaches it.
pub struct Tally {
    how: How,
    link: Link,
    /// Dropped behind the link, for one that is in use is not removed.
    event: Option<Event>,
    skeleton: Owned<TallySkel<'static>>,
}

impl Tally {
    /// Loads the program and attaches it to a function of the kernel.
    pub fn attach(how: How, function: &str) -> Result<Self> {
        let skeleton = Owned::new("tally", |storage| {
            let mut open = TallySkelBuilder::default().open(storage)?;
            for mut program in open.open_object_mut().progs_mut() {
                if program.name() == how.program() {
                    program.set_autoload(true);
                    if how == How::Fexit {
                        program.set_attach_target(0, Some(function.to_owned()))?;
                    }
                }
            }
            open.load()
        })
        .map_err(|error| match error {
            // libbpf looks for the function, and says nothing where there is none.
            Error::Load { source, log, .. } if log.is_empty() => {
                kernel::explain(how.attach(), function, source)
            }
            other => other,
        })?;
        let caller = &skeleton.progs.tally_caller;
        run::on_cpu(&caller.into(), current_cpu(), &[])?;
        let (link, event) = link(how, program(&skeleton, how), function)?;
        Ok(Tally {
            how,
            link,
            event,
            skeleton,
        })
    }

    /// How it is attached.
    pub fn how(&self) -> How {
        self.how
    }

    /// What was counted so far.
    pub fn counts(&self) -> Result<Counts> {
        let failed = |source| Error::Map {
            map: "counts",
            action: "reading it",
            source,
        };
        let counts = &self.skeleton.maps.counts;
        let values = counts.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(failed)?.unwrap_or_default();
        let sum = |at: usize| {
            let words = values
                .iter()
                .filter_map(|value| plain::read::<u64>(value.get(at..)?));
            words.sum()
        };
        Ok(Counts {
            hits: sum(0),
            strangers: sum(size_of::<u64>()),
            missed: self.missed()?,
        })
    }

    fn missed(&self) -> Result<Option<u64>> {
        let by_mechanism = match (&self.event, self.how) {
            (Some(event), _) => event.missed().map_err(|source| Error::Attach {
                what: self.how.attach().to_string(),
                action: "asking what it missed, in tracefs's kprobe_profile",
                source: source.into(),
            })?,
            (None, How::KretprobeMulti) if !links_tell() => return Ok(None),
            (None, _) => kernel::missed(&self.link)?,
        };
        let passed_over = RunStats::of(program(&self.skeleton, self.how))?.recursion_misses;
        Ok(Some(by_mechanism + passed_over))
    }
}

fn program<'a>(skeleton: &'a TallySkel<'static>, how: How) -> &'a ProgramMut<'static> {
    match how {
        How::Kprobe | How::Kretprobe { .. } => &skeleton.progs.tally_kprobe,
        How::KretprobeMulti => &skeleton.progs.tally_multi,
        How::Fexit => &skeleton.progs.tally_tracing,
    }
}

fn link(how: How, program: &ProgramMut<'_>, function: &str) -> Result<(Link, Option<Event>)> {
    let attach = how.attach();
    let of_event = |maxactive| {
        let (event, opened) = Event::open(function, maxactive)?
            .map_err(|error| kernel::explain(attach, function, error.into()))?;
        let link = kernel::perf(program, opened);
        Ok((link, Some(event)))
    };
    let (link, event) = match how {
        How::Kprobe => of_event(None)?,
        How::Kretprobe { maxactive } => of_event(Some(maxactive))?,
        How::KretprobeMulti => (kernel::multi(program, function, true), None),
        How::Fexit => (program.attach_trace(), None),
    };
    match link {
        Ok(link) => Ok((link, event)),
        Err(source) => Err(kernel::explain(attach, function, source)),
    }
}

/// Whether this kernel says what a link to many functions missed.
fn links_tell() -> bool {
    Version::of_release(&feature::release()).is_some_and(|version| version >= LINKS_TELL)
}
