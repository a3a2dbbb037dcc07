//! The programs of `bpf/probe.bpf.c` that run in user space, and what their bodies leave there.

use std::{cell::RefCell, rc::Rc};

use bpfcost_uprobe::{
    object::Choice,
    probes::{Attached, Place, Probes},
};

use super::{Attachment, Body, ProbeCounts, ProgramKind, maps::writer};
use crate::{
    error::{Result, lacks},
    object::load_for_processes,
    plain, shared,
};

/// Bytes of a thread's value before a program writes there: no process has such a number.
const UNWRITTEN: [u8; 8] = [0xff; 8];

/// The map of the object's variables.
const VARIABLES: &str = ".bss";

/// Programs that run in the processes that they are attached to.
#[derive(Debug)]
pub struct UserProgram<'a> {
    pub(super) probes: &'a SharedProbes,
    pub(super) name: &'a str,
}

pub(super) type SharedProbes = Rc<RefCell<Probes>>;

/// The programs of all attach types in user space, and their maps. They are loaded once, when they are first needed.
#[derive(Default)]
pub(super) struct UserPrograms(RefCell<Option<SharedProbes>>);

impl UserPrograms {
    pub(super) fn load(&self) -> Result<SharedProbes> {
        let mut loaded = self.0.borrow_mut();
        if let Some(probes) = &*loaded {
            return Ok(Rc::clone(probes));
        }
        let kinds = [ProgramKind::Uprobe, ProgramKind::Usdt];
        let names: Vec<String> = kinds
            .iter()
            .flat_map(|&kind| Body::ALL.map(|body| super::probe::name(kind, body)))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let choice = Choice {
            programs: &names,
            ..Choice::default()
        };
        let probes = load_for_processes("probe", &choice)?;
        Ok(Rc::clone(loaded.insert(Rc::new(RefCell::new(probes)))))
    }

    /// Empties what a body fills, and returns how many things were in it, as [`BodyMaps::take`](super::BodyMaps::take).
    pub(super) fn take(&self, body: Body) -> Result<u64> {
        let probes = self.load()?;
        let mut probes = probes.borrow_mut();
        match body {
            Body::Empty => Ok(0),
            Body::Map => {
                let last = probes.map("last_pid")?;
                let values = last.of_threads(0)?;
                last.set_of_threads(0, &UNWRITTEN)?;
                // Memory that no thread has had is zero.
                let written = |value: &&Vec<u8>| **value != UNWRITTEN && **value != [0; 8];
                Ok(values.iter().filter(written).count() as u64)
            }
            Body::Hash => {
                let hits = probes.map("hits_by_pid")?;
                let mut sum = 0;
                for (key, value) in hits.entries()? {
                    sum += plain::read::<u64>(&value).unwrap_or(0);
                    // Counts begin again, and the entry stays: a batch finds it there.
                    hits.set(&key, &[0; 8])?;
                }
                Ok(sum)
            }
            Body::Ringbuf | Body::RingbufWakeup => {
                let mut right = 0;
                probes.consume("events", |pid, event| {
                    right += u64::from(writer(event) == Some(pid.cast_unsigned().into()));
                })?;
                Ok(right)
            }
            Body::Stack => {
                let stacks = probes.map("stacks")?;
                let mut found = 0;
                for number in 0..super::maps::ENTRIES {
                    found += u64::from(stacks.stack(number)?.is_some());
                }
                Ok(found)
            }
        }
    }
}

/// Lets the counts begin again.
pub(super) fn forget(probes: &Probes) -> Result<()> {
    let begun = shared::bss {
        hits: 0,
        drops: 0,
        errors: 0,
        other_hits: 0,
        stack_id: -1,
        function: 0,
    };
    Ok(probes
        .map(VARIABLES)?
        .set(&[0; 4], plain::bytes_of(&begun))?)
}

/// Reads the counts that runs left since [`forget`].
pub(super) fn seen(probes: &Probes) -> Result<ProbeCounts> {
    let bytes = probes.map(VARIABLES)?.get(&[0; 4])?;
    let counts: Option<shared::bss> = bytes.and_then(|bytes| plain::read(&bytes));
    let counts = counts.ok_or_else(|| lacks("probe", VARIABLES))?;
    Ok(ProbeCounts {
        hits: counts.hits,
        drops: counts.drops,
        errors: counts.errors,
        stack_id: counts.stack_id,
        other_hits: counts.other_hits,
    })
}

/// A program that is attached to a process. Dropping it detaches the program.
pub(super) struct UserAttachment {
    probes: SharedProbes,
    attached: Option<Attached>,
}

impl UserAttachment {
    pub(super) fn attach(probes: &SharedProbes, pid: i32, place: &Place<'_>) -> Result<Self> {
        let attached = probes.borrow_mut().attach(pid, &[*place])?;
        Ok(UserAttachment {
            probes: Rc::clone(probes),
            attached: Some(attached),
        })
    }
}

impl Attachment for UserAttachment {
    fn missed(&mut self) -> Result<u64> {
        let hits = self.attached.as_ref();
        let hits = hits.map(|attached| self.probes.borrow().hits(attached));
        Ok(hits.map_or(0, |hits| {
            hits.entry.missed + hits.returns.missed + hits.inside.missed
        }))
    }
}

impl Drop for UserAttachment {
    fn drop(&mut self) {
        if let Some(attached) = self.attached.take() {
            // A process that is gone has nothing to restore.
            let _ = self.probes.borrow_mut().detach(attached);
        }
    }
}
