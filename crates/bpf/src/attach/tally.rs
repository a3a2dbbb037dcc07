//! A tally: a program that counts the calls of a function that many threads are in at once, and what the
//! kernel says of the calls that it missed.

use std::cell::RefCell;

use libbpf_rs::{
    MapCore as _, MapFlags, ProgramMut,
    skel::{OpenSkel as _, SkelBuilder as _},
};

use super::how::{Held, How, Toolbox};
use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    feature::Feature,
    object::Owned,
    plain, run,
    skel::tally::{TallySkel, TallySkelBuilder},
};

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
    held: RefCell<Held>,
    skeleton: Owned<TallySkel<'static>>,
}

impl Tally {
    /// What the kernel must have, what tells most of it first.
    pub fn needs(how: How) -> Vec<Feature> {
        [how.needs(), vec![Feature::SyscallProgram]].concat()
    }

    /// Loads the program and attaches it to a function of the kernel.
    pub fn attach(how: How, function: &str) -> Result<Self> {
        let Some(name) = program_name(how) else {
            return Err(Error::NotLoaded(format!("a tally by {}", how.attach())));
        };
        let skeleton = Owned::new("tally", |storage| {
            let mut open = TallySkelBuilder::default().open(storage)?;
            for mut program in open.open_object_mut().progs_mut() {
                if program.name() == name {
                    program.set_autoload(true);
                    how.aim(&mut program, function)?;
                }
            }
            open.load()
        })
        .map_err(|error| how.explain_load(function, error))?;
        let caller = &skeleton.progs.tally_caller;
        run::on_cpu(&run::Program::of(caller)?, current_cpu(), &[])?;
        let held = Held::attach(
            how,
            program(&skeleton, how),
            function,
            &mut Toolbox::default(),
        )?;
        Ok(Tally {
            how,
            held: RefCell::new(held),
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
            missed: self
                .held
                .borrow_mut()
                .missed(program(&self.skeleton, self.how))?,
        })
    }
}

/// The program for that way; `None` where it has no calls of a function to count, or not all of them.
fn program_name(how: How) -> Option<&'static str> {
    match how {
        How::Kprobe | How::KprobeInt3 | How::Kretprobe { .. } => Some("tally_kprobe"),
        How::KprobeMulti | How::KretprobeMulti => Some("tally_multi"),
        How::Fexit => Some("tally_tracing"),
        How::Tracepoint | How::RawTp | How::TpBtf | How::Fentry => None,
    }
}

fn program<'a>(skeleton: &'a TallySkel<'static>, how: How) -> &'a ProgramMut<'static> {
    match how {
        How::KprobeMulti | How::KretprobeMulti => &skeleton.progs.tally_multi,
        How::Fexit => &skeleton.progs.tally_tracing,
        _ => &skeleton.progs.tally_kprobe,
    }
}
