//! Probes on functions: attached and detached together, while all of the process's threads are stopped.
//!
//! A thread that is between two instructions which a jump replaces is moved to the second one's copy. One whose
//! signal handler will return there lets the attachment wait. On detaching, the bytes are restored and the threads
//! go on at once: what was made in the process stays, so a thread that is in a probe leaves it when it likes.

use super::{
    error::{Error, Result},
    image::Function,
    maps::mappings,
    runtime::{Counts, Known, Program, Runtime},
    session::Session,
    site::{JUMP, Site, When},
};
use std::{thread, time::Duration};

/// How often an attachment waits for handlers to return, and how long at a time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_micros(300);

/// Programs for one function.
#[derive(Debug, Clone)]
pub struct Probe<'a> {
    /// The function.
    pub function: &'a Function,
    /// What runs before its first instruction.
    pub entry: Option<Program>,
    /// What runs before it returns, wherever it does.
    pub returns: Option<Program>,
    /// What runs before instructions inside of it.
    pub inside: &'a [Inside],
}

/// A program for one instruction of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside {
    /// Where in the function the instruction begins; 0 is the entry, and counted as such.
    pub offset: u64,
    /// What runs before it.
    pub program: Program,
    /// The address of a USDT site's semaphore, which is raised while the probe is attached.
    pub semaphore: Option<u64>,
}

/// Probes that are ready in the process, but not reached by any function yet.
#[derive(Debug)]
pub struct Prepared {
    probes: Vec<Ready>,
}

/// One probe of those.
#[derive(Debug)]
struct Ready {
    function: Function,
    known: Vec<Known>,
}

/// Probes on functions that were attached together.
#[derive(Debug)]
#[must_use = "it stays attached until it is given to Runtime::detach"]
pub struct Attachment {
    /// How long all of the process was stopped for it.
    pub stopped: Duration,
    pub(super) addresses: Vec<u64>,
    probes: Vec<Started>,
}

/// The slots of one probe, and their counts when it was attached.
#[derive(Debug)]
struct Started {
    entry: Option<(u64, Counts)>,
    returns: Option<(u64, Counts)>,
    inside: Vec<(u64, Counts)>,
}

/// What one probe of an attachment did so far.
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
    pub(super) fn known(&self) -> impl Iterator<Item = &Known> {
        self.probes.iter().flat_map(|ready| &ready.known)
    }
}

impl Runtime {
    /// Attaches programs to functions, all at once: the process is stopped once for them. On an error, none is.
    pub fn attach(&mut self, probes: &[Probe<'_>]) -> Result<Attachment> {
        let prepared = self.prepare(probes)?;
        for _ in 1..TRIES {
            match self.attach_in(self.stop()?, &prepared) {
                Err(Error::SavedAddress { .. }) => thread::sleep(PAUSE),
                other => return other,
            }
        }
        self.attach_in(self.stop()?, &prepared)
    }

    /// Makes the code of probes, for [`Self::attach_in`]. The process goes on meanwhile.
    pub fn prepare(&mut self, probes: &[Probe<'_>]) -> Result<Prepared> {
        let mut all: Vec<(&Function, Vec<Planned>)> = Vec::new();
        for probe in probes {
            self.check(probe.function)?;
            let sites = sites(probe)?;
            for Planned { site, .. } in &sites {
                let mut earlier = all.iter().flat_map(|(_, sites)| sites);
                let is_taken = earlier
                    .any(|Planned { site: other, .. }| overlaps(site, other.address, other.end()));
                if is_taken {
                    return Err(probed_already(site));
                }
                // Before the site's code gets this program: another attachment may run it.
                self.check_free(site)?;
            }
            all.push((probe.function, sites));
        }
        let mut prepared = Prepared { probes: Vec::new() };
        for (function, sites) in all {
            let known = sites
                .iter()
                .map(|planned| {
                    let known = self.trampoline(function, &planned.site, planned.program)?;
                    Ok(Known {
                        semaphore: planned.semaphore,
                        ..known
                    })
                })
                .collect::<Result<_>>()?;
            let function = function.clone();
            prepared.probes.push(Ready { function, known });
        }
        Ok(prepared)
    }

    /// Attaches probes to the process that is stopped. [`Error::SavedAddress`] says that it has to go on first.
    pub fn attach_in(&mut self, session: Session, prepared: &Prepared) -> Result<Attachment> {
        for ready in &prepared.probes {
            self.check(&ready.function)?;
        }
        for known in prepared.known() {
            self.check_free(&known.site)?;
        }
        let threads = session.threads();
        let all = mappings(self.pid)?;
        self.check_threads(threads, &all, prepared)?;
        self.check_stacks(threads, prepared, &all)?;
        let moved = self.move_threads(threads, prepared)?;
        let jumps = prepared
            .known()
            .map(|known| Ok((known, self.replacement(known, &all)?)))
            .collect::<Result<Vec<_>>>()?;
        self.release_areas(threads)?;

        if !moved.is_empty() {
            // Some go on there.
            self.write_code(&session)?;
            session.set_registers(&moved)?;
        }
        let started = |ready: &Ready| {
            let start = |known: &Known| (known.slot, self.count(known.slot));
            let of = |when| ready.known.iter().filter(move |one| one.site.when == when);
            Started {
                // All returns have one slot.
                entry: of(When::Entry).next().map(start),
                returns: of(When::Return).next().map(start),
                inside: of(When::Inside).map(start).collect(),
            }
        };
        let probes = prepared.probes.iter().map(started).collect();
        session.check()?;
        let attachment = Attachment {
            stopped: Duration::ZERO,
            addresses: jumps.iter().map(|(known, _)| known.site.address).collect(),
            probes,
        };
        if let Err(error) = self.replace(&session, jumps) {
            self.abandon(Ok(session), &attachment);
            return Err(error);
        }
        let stopped = session.duration();
        if let Err(error) = session.finish() {
            self.abandon(self.stop(), &attachment);
            return Err(error);
        }
        Ok(Attachment {
            stopped,
            ..attachment
        })
    }

    /// Restores the functions. Returns what the probes did, in the order in which they were given to
    /// [`Self::attach`]. Of a process that exited, or runs another program, there is nothing to restore.
    pub fn detach(&mut self, attachment: Attachment) -> Result<Vec<Hits>> {
        match self.stop() {
            Ok(session) => self.detach_in(session, attachment),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {
                self.forget(&attachment)?;
                Ok(self.hits(&attachment))
            }
            Err(error) => Err(error),
        }
    }

    /// Restores the functions of the process that is stopped.
    pub fn detach_in(&mut self, session: Session, attachment: Attachment) -> Result<Vec<Hits>> {
        let (session, restored) = self.undo(session, &attachment)?;
        let ended = session.finish();
        let forgotten = self.forget(&attachment);
        match ended {
            Ok(()) | Err(Error::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        restored.and(forgotten).map(|()| self.hits(&attachment))
    }

    /// Restores the functions of an attachment that failed. Where the process can't be stopped, the tracer process does it
    /// after this one's end.
    fn abandon(&mut self, session: Result<Session>, attachment: &Attachment) {
        match session.and_then(|session| self.undo(session, attachment)) {
            Ok((session, _)) => drop(session),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {}
            Err(_) => return,
        }
        let _ = self.forget(attachment);
    }

    /// Restores the functions of an attachment. Returns the session in which it is done, another one where the tracer
    /// process of the first was killed, and the first error of those that there are.
    fn undo(&self, mut session: Session, attachment: &Attachment) -> Result<(Session, Result<()>)> {
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

    /// What an attachment's probes did so far, in their order. May be called at any time, also after the process's
    /// end.
    pub fn hits(&self, attachment: &Attachment) -> Vec<Hits> {
        let since = |starts: &[(u64, Counts)]| {
            let mut sum = Counts::default();
            for &(slot, before) in starts {
                let now = self.count(slot);
                sum.hits += now.hits - before.hits;
                sum.missed += now.missed - before.missed;
            }
            sum
        };
        let probes = attachment.probes.iter();
        probes
            .map(|started| Hits {
                entry: since(started.entry.as_slice()),
                returns: since(started.returns.as_slice()),
                inside: since(&started.inside),
            })
            .collect()
    }

    /// An error where a function isn't the file's, apart from our own jumps.
    fn check(&self, function: &Function) -> Result<()> {
        function.check_except(&self.memory, |address| {
            let (&start, replaced) = self.replaced.range(..=address).next_back()?;
            replaced.original.get((address - start) as usize).copied()
        })
    }

    /// An error where a jump of this runtime touches a site.
    fn check_free(&self, site: &Site) -> Result<()> {
        let mut replaced = self.replaced.keys();
        if replaced.any(|&other| overlaps(site, other, other + JUMP as u64)) {
            return Err(probed_already(site));
        }
        Ok(())
    }
}

/// A place of a probe, and what runs there.
struct Planned {
    site: Site,
    program: Program,
    semaphore: Option<u64>,
}

/// The places of a probe, by ascending address. An error where they overlap.
fn sites(probe: &Probe<'_>) -> Result<Vec<Planned>> {
    let function = probe.function;
    let plan = |site, program| Planned {
        site,
        program,
        semaphore: None,
    };
    let mut sites: Vec<Planned> = Vec::new();
    if let Some(program) = probe.entry {
        sites.push(plan(Site::entry(function)?, program));
    }
    if let Some(program) = probe.returns {
        let returns = Site::returns(function)?.complete(function)?;
        sites.extend(returns.into_iter().map(|site| plan(site, program)));
    }
    for inside in probe.inside {
        sites.push(Planned {
            site: Site::at(function, inside.offset)?,
            program: inside.program,
            semaphore: inside.semaphore,
        });
    }
    sites.sort_by_key(|planned| planned.site.address);
    for pair in sites.windows(2) {
        let (one, other) = (&pair[0].site, &pair[1].site);
        if one.end() <= other.address {
            continue;
        }
        let reason = if (one.when, other.when) == (When::Entry, When::Return) {
            "it is too short for a probe of its entry and one of its return".to_owned()
        } else {
            let offset = |site: &Site| site.probed() - function.address;
            let (one, other) = (offset(one), offset(other));
            format!("the jumps for +{one:#x} and +{other:#x} would overlap")
        };
        return Err(Error::Unpatchable {
            function: function.name.clone(),
            reason,
        });
    }
    Ok(sites)
}

/// Whether a site's instructions reach into these bytes.
fn overlaps(site: &Site, start: u64, end: u64) -> bool {
    site.address < end && start < site.end()
}

fn probed_already(site: &Site) -> Error {
    Error::Unpatchable {
        function: site.function.clone(),
        reason: "this program probes it already".to_owned(),
    }
}
