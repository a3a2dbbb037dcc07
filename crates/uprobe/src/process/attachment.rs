//! Probes on functions: attached and detached together, while all of the process's threads are stopped.
//!
//! A thread that is between two instructions which a jump replaces is moved to the second one's copy. One whose
//! signal handler will return there lets the attachment wait. On detaching, the bytes are restored and the threads
//! go on at once: what was made in the process stays up to the runtime's end, so a thread that is in a probe leaves it when it
//! likes.

use super::{
    error::{Error, Result},
    image::Function,
    maps::mappings,
    place::Addition,
    plan::plan,
    runtime::{Counts, Known, Program, Runtime},
    session::Session,
    site::When,
};
use std::{mem, thread, time::Duration};

/// Number of attempts to attach while handlers have to return first, and the time between two.
const ATTEMPTS: u32 = 100;
const RETRY_INTERVAL: Duration = Duration::from_micros(300);

/// Programs for one function.
#[derive(Debug, Clone)]
pub struct Probe<'a> {
    /// The function.
    pub function: &'a Function,
    /// The program before its first instruction.
    pub entry: Option<Program>,
    /// The program before each of its returns.
    pub returns: Option<Program>,
    /// Programs before instructions inside of it.
    pub inside: &'a [Inside],
}

/// A program for one instruction of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// Offset of the instruction in the function; 0 is the entry, and counted as such.
    pub offset: u64,
    /// The program before it.
    pub program: Program,
    /// The address of a USDT site's semaphore, which is raised while the probe is attached.
    pub semaphore: Option<u64>,
}

/// Probes that are ready in the process, but not reached by any function yet.
#[derive(Debug)]
pub struct Prepared {
    number: u64,
    /// Each once.
    functions: Vec<Function>,
    additions: Vec<Addition>,
    probes: Vec<Slots>,
}

/// Probes on functions that were attached together.
#[derive(Debug)]
#[must_use = "it stays attached until it is given to Runtime::detach"]
pub struct Attachment {
    /// Time for which all of the process was stopped.
    pub stopped: Duration,
    pub(super) number: u64,
    pub(super) addresses: Vec<u64>,
    probes: Vec<(Slots, Hits)>,
}

/// The slots of one probe.
#[derive(Debug, Clone, Default)]
struct Slots {
    entry: Vec<Slot>,
    returns: Vec<Slot>,
    inside: Vec<Slot>,
}

/// Slots that count one of its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    /// The slot whose first number is its runs.
    hits: u64,
    /// The slot of the place, whose second number is the calls without it.
    missed: u64,
}

/// Counts of one probe of an attachment so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// At the function's entry.
    pub entry: Counts,
    /// At its returns.
    pub returns: Counts,
    /// At all of its instructions inside.
    pub inside: Counts,
}

impl Prepared {
    /// The sites where a jump has to be written.
    pub(super) fn jumps(&self) -> impl Iterator<Item = &Known> {
        let first = self.additions.iter().filter(|addition| addition.is_first());
        first.map(|addition| &addition.known)
    }
}

impl Runtime {
    /// Attaches programs to functions, all at once: the process is stopped once for them. On an error, none is. Several
    /// programs at one place run one after the other, as in the kernel: the latest first, those of one call as if they
    /// had been attached in the probes' order.
    pub fn attach(&mut self, probes: &[Probe<'_>]) -> Result<Attachment> {
        let prepared = self.prepare(probes)?;
        for _ in 1..ATTEMPTS {
            match self.attach_in(self.stop()?, &prepared) {
                Err(Error::SavedAddress { .. }) => thread::sleep(RETRY_INTERVAL),
                // While the process was stopped, that one could not go on.
                Err(Error::MemoryShared { .. }) => self.wait_for_sharers()?,
                other => return other,
            }
        }
        self.attach_in(self.stop()?, &prepared)
    }

    /// Makes the code of probes, for [`Self::attach_in`]. The process goes on meanwhile.
    pub fn prepare(&mut self, probes: &[Probe<'_>]) -> Result<Prepared> {
        self.end_lost()?;
        let mut functions: Vec<Function> = Vec::new();
        for probe in probes {
            if !functions.contains(probe.function) {
                self.check(probe.function)?;
                functions.push(probe.function.clone());
            }
        }
        self.attachments += 1;
        let mut prepared = Prepared {
            number: self.attachments,
            functions,
            additions: Vec::new(),
            probes: vec![Slots::default(); probes.len()],
        };
        let plan = plan(probes)?;
        if let Some(tail) = plan.iter().find(|planned| planned.site.is_tail) {
            super::tail::check_shadow_stacks(self.pid, &tail.site)?;
        }
        for planned in &plan {
            self.place(&planned.site)?;
        }
        let mut taken = Vec::new();
        for planned in &plan {
            let addition = self.addition(planned, prepared.number, &mut taken)?;
            for (&(probe, _), member) in planned.programs.iter().zip(&addition.new) {
                let slot = Slot {
                    hits: member.slot,
                    missed: addition.known.slot,
                };
                prepared.probes[probe].add(planned.site.when, slot);
            }
            prepared.additions.push(addition);
        }
        Ok(prepared)
    }

    /// Attaches probes to the process that is stopped. [`Error::SavedAddress`] says that it has to go on first.
    pub fn attach_in(&mut self, session: Session, prepared: &Prepared) -> Result<Attachment> {
        for function in &prepared.functions {
            self.check(function)?;
        }
        for addition in &prepared.additions {
            self.check_addition(addition)?;
        }
        if let Some(error) = self.sharer() {
            return Err(error);
        }
        let threads = session.threads();
        let all = mappings(self.pid)?;
        self.check_threads(threads, &all, prepared)?;
        self.check_stacks(threads, prepared, &all)?;
        let moved = self.move_threads(threads, prepared)?;
        let mut additions = Vec::new();
        for addition in &prepared.additions {
            let is_first = addition.is_first();
            let replaced = is_first.then(|| self.replacement(&addition.known, &all));
            additions.push((addition, replaced.transpose()?));
        }
        self.release_areas(threads)?;

        // Before any thread can be there: what follows may fail, and the tool may be killed.
        for addition in prepared.additions.iter().filter(|one| one.is_first()) {
            self.pending.push(addition.program());
        }
        if !moved.is_empty() {
            // Some go on there.
            self.write_code(&session)?;
            session.set_registers(&moved)?;
        }
        session.check()?;
        let addresses = prepared.additions.iter();
        let probes = prepared.probes.iter();
        let attachment = Attachment {
            stopped: Duration::ZERO,
            number: prepared.number,
            addresses: addresses.map(|one| one.known.site.address).collect(),
            probes: probes
                .map(|slots| (slots.clone(), self.sum(slots)))
                .collect(),
        };
        if let Err(error) = self.add(&session, additions) {
            let _ = self.abandon(Ok(session), attachment);
            return Err(error);
        }
        let stopped = session.duration();
        if let Err(error) = session.finish() {
            let _ = self.abandon(self.stop(), attachment);
            return Err(error);
        }
        Ok(Attachment {
            stopped,
            ..attachment
        })
    }

    /// Restores the functions. Returns what the probes did, in the order in which they were given to
    /// [`Self::attach`]. Of a process that exited, or runs another program, there is nothing to restore. On an error,
    /// what could not be restored is so before the next probes are attached, or else at this runtime's end.
    pub fn detach(&mut self, attachment: Attachment) -> Result<Vec<Hits>> {
        // Where it fails, so does this one.
        let _ = self.end_lost();
        match self.stop() {
            Ok(session) => self.detach_in(session, attachment),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {
                let hits = self.hits(&attachment);
                self.forget(attachment).map(|()| hits)
            }
            Err(error) => {
                self.lost.push(attachment);
                Err(error)
            }
        }
    }

    /// Restores the functions of the process that is stopped.
    pub fn detach_in(&mut self, session: Session, attachment: Attachment) -> Result<Vec<Hits>> {
        let (session, restored) = match self.undo(session, &attachment) {
            Ok(undone) => undone,
            Err(error) => {
                self.lost.push(attachment);
                return Err(error);
            }
        };
        let ended = session.finish();
        let hits = self.hits(&attachment);
        let forgotten = self.forget(attachment);
        for result in [ended, restored] {
            match result {
                // Of a process that was killed meanwhile, there is nothing to restore either.
                Ok(()) | Err(Error::Gone { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        forgotten.map(|()| hits)
    }

    /// Restores the functions of an attachment that failed. An error where the process can't be stopped: it is lost
    /// then.
    fn abandon(&mut self, session: Result<Session>, attachment: Attachment) -> Result<()> {
        match session.and_then(|session| self.undo(session, &attachment)) {
            Ok((session, _)) => drop(session),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {}
            Err(error) => {
                self.lost.push(attachment);
                return Err(error);
            }
        }
        self.forget(attachment)
    }

    /// Restores what could not be restored when it ended: otherwise its programs would run together with those that are
    /// attached later.
    fn end_lost(&mut self) -> Result<()> {
        let mut result = Ok(());
        for lost in mem::take(&mut self.lost) {
            let session = self.stop();
            result = result.and(self.abandon(session, lost));
        }
        result
    }

    /// Restores the functions of an attachment. Returns the session in which it is done, another one where the tracer
    /// process of the first was killed, and the first error of those that there are.
    fn undo(
        &mut self,
        mut session: Session,
        attachment: &Attachment,
    ) -> Result<(Session, Result<()>)> {
        loop {
            session = self.held(session)?;
            match self.restore(&session, attachment) {
                Err(Error::TracerEnded { .. }) => {}
                restored => return Ok((session, restored)),
            }
        }
    }

    /// The session, or another one in place of one whose tracer process was killed.
    fn held(&self, session: Session) -> Result<Session> {
        match session.check() {
            Ok(()) => Ok(session),
            Err(_) => self.stop(),
        }
    }

    /// Returns what an attachment's probes did so far, in their order. May be called at any time, also after the process's
    /// end.
    pub fn hits(&self, attachment: &Attachment) -> Vec<Hits> {
        let since = |now: Counts, before: Counts| Counts {
            hits: now.hits - before.hits,
            missed: now.missed - before.missed,
        };
        let probes = attachment.probes.iter();
        probes
            .map(|(slots, before)| {
                let now = self.sum(slots);
                Hits {
                    entry: since(now.entry, before.entry),
                    returns: since(now.returns, before.returns),
                    inside: since(now.inside, before.inside),
                }
            })
            .collect()
    }

    /// The counts of a probe's slots, since their first probe.
    fn sum(&self, slots: &Slots) -> Hits {
        let sum = |slots: &[Slot]| {
            let mut sum = Counts::default();
            for slot in slots {
                sum.hits += self.count(slot.hits).hits;
                sum.missed += self.count(slot.missed).missed;
            }
            sum
        };
        Hits {
            entry: sum(&slots.entry),
            returns: sum(&slots.returns),
            inside: sum(&slots.inside),
        }
    }

    /// An error where a function isn't the file's, apart from our own jumps.
    fn check(&self, function: &Function) -> Result<()> {
        function.check_except(&self.memory, |address| {
            let (&start, replaced) = self.replaced.range(..=address).next_back()?;
            replaced.original.get((address - start) as usize).copied()
        })
    }
}

impl Slots {
    fn add(&mut self, when: When, slot: Slot) {
        match when {
            When::Entry => self.entry.push(slot),
            // All returns have one slot.
            When::Return if self.returns.is_empty() => self.returns.push(slot),
            When::Return => {}
            When::Inside => self.inside.push(slot),
        }
    }
}
