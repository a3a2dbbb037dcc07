//! Probes on functions: attached and detached together, while all of the process's threads are stopped.
//!
//! A thread that is between two instructions which a jump replaces is moved to the second one's copy. One whose
//! signal handler will return there lets the attachment wait. On detaching, the bytes are restored and the threads
//! go on at once: what was made in the process stays, so a thread that is in a probe leaves it when it likes.

use super::{
    error::{Error, Result},
    image::Function,
    maps::{Mapping, Origin, mappings},
    patch::Replaced,
    runtime::{Counts, Known, Program, Runtime},
    server::SYNC_CORE,
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
    addresses: Vec<u64>,
    probes: Vec<Started>,
}

/// The slots of one probe, and their counts when it was attached.
#[derive(Debug)]
struct Started {
    entry: Option<(u64, Counts)>,
    returns: Option<(u64, Counts)>,
}

/// What one probe of an attachment did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// At the function's entry.
    pub entry: Counts,
    /// At its returns.
    pub returns: Counts,
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
        let mut all: Vec<(&Function, Vec<(Site, Program)>)> = Vec::new();
        for probe in probes {
            self.check(probe.function)?;
            let sites = sites(probe)?;
            for (site, _) in &sites {
                let earlier = all.iter().flat_map(|(_, sites)| sites);
                let is_taken = earlier
                    .into_iter()
                    .any(|(other, _)| overlaps(site, other.address, other.end()));
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
                .map(|(site, program)| self.trampoline(function, site, *program))
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
        self.check_threads(threads)?;
        let all = mappings(self.pid)?;
        self.check_stacks(threads, prepared, &all)?;
        let moved = self.move_threads(threads, prepared)?;
        let jumps = prepared
            .known()
            .map(|known| self.jump(known, &all))
            .collect::<Result<Vec<_>>>()?;
        self.release_areas(threads)?;

        session.set_registers(&moved)?;
        let started = |ready: &Ready| {
            let counts = |when| {
                let mut known = ready.known.iter();
                let slot = known.find(|known| known.site.when == when)?.slot;
                Some((slot, self.count(slot)))
            };
            Started {
                entry: counts(When::Entry),
                returns: counts(When::Return),
            }
        };
        let probes = prepared.probes.iter().map(started).collect();
        let attachment = Attachment {
            stopped: Duration::ZERO,
            addresses: jumps.iter().map(|&(address, _)| address).collect(),
            probes,
        };
        let written = self.write(&jumps).and_then(|()| synchronize(&session));
        if let Err(error) = written {
            let _ = self.restore(&attachment);
            let _ = synchronize(&session);
            return Err(error);
        }
        let stopped = session.duration();
        if let Err(error) = session.finish() {
            let _ = self.restore(&attachment);
            return Err(error);
        }
        Ok(Attachment {
            stopped,
            ..attachment
        })
    }

    /// The jump that leads to a site's code, and where it is written.
    fn jump(&self, known: &Known, all: &[Mapping]) -> Result<(u64, Replaced)> {
        let address = known.site.address;
        let distance = known.entry.wrapping_sub(address + JUMP as u64) as i64;
        let distance = i32::try_from(distance).map_err(|_| Error::NoGap {
            pid: self.pid,
            size: 0,
        })?;
        let mut jump = [0xe9, 0, 0, 0, 0];
        jump[1..].copy_from_slice(&distance.to_le_bytes());
        let replaced = Replaced {
            original: known.site.original,
            jump,
            origin: Origin::of(all, address).ok_or(Error::Gone { pid: self.pid })?,
        };
        Ok((address, replaced))
    }

    fn write(&mut self, jumps: &[(u64, Replaced)]) -> Result<()> {
        for &(address, replaced) in jumps {
            self.tracer.add(address, &replaced)?;
            self.replaced.insert(address, replaced);
            self.memory.write(address, &replaced.jump)?;
        }
        Ok(())
    }

    /// Restores the functions. Returns what the probes did, in the order in which they were given to
    /// [`Self::attach`]. Of a process that exited, or runs another program, there is nothing to restore.
    pub fn detach(&mut self, attachment: Attachment) -> Result<Vec<Hits>> {
        match self.stop() {
            Ok(session) => self.detach_in(session, attachment),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {
                self.forget(&attachment);
                Ok(self.hits(&attachment))
            }
            Err(error) => Err(error),
        }
    }

    /// Restores the functions of the process that is stopped.
    pub fn detach_in(&mut self, session: Session, attachment: Attachment) -> Result<Vec<Hits>> {
        let restored = self.restore(&attachment);
        match synchronize(&session).and_then(|()| session.finish()) {
            Ok(()) | Err(Error::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        restored.map(|()| self.hits(&attachment))
    }

    /// Writes the original bytes back, wherever the jumps still are. The first error of those that there are.
    fn restore(&mut self, attachment: &Attachment) -> Result<()> {
        let mut result = Ok(());
        let all = match mappings(self.pid) {
            // Its memory can't be read either.
            Err(Error::NoProcess { .. }) => Vec::new(),
            other => other?,
        };
        for &address in &attachment.addresses {
            if let Some(replaced) = self.replaced.get(&address) {
                result = result.and(replaced.restore(address, &self.memory, &all));
            }
        }
        self.forget(attachment);
        result
    }

    /// What an attachment's probes did so far, in their order. May be called at any time, also after the process's
    /// end.
    pub fn hits(&self, attachment: &Attachment) -> Vec<Hits> {
        let since = |start: Option<(u64, Counts)>| {
            start.map_or_else(Counts::default, |(slot, before)| {
                let now = self.count(slot);
                Counts {
                    hits: now.hits - before.hits,
                    missed: now.missed - before.missed,
                }
            })
        };
        let probes = attachment.probes.iter();
        probes
            .map(|started| Hits {
                entry: since(started.entry),
                returns: since(started.returns),
            })
            .collect()
    }

    fn forget(&mut self, attachment: &Attachment) {
        for address in &attachment.addresses {
            self.replaced.remove(address);
            self.tracer.remove(*address);
        }
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

/// The places of a probe, by ascending address. An error where they overlap.
fn sites(probe: &Probe<'_>) -> Result<Vec<(Site, Program)>> {
    let function = probe.function;
    let mut sites: Vec<(Site, Program)> = Vec::new();
    if let Some(program) = probe.entry {
        sites.push((Site::entry(function)?, program));
    }
    if let Some(program) = probe.returns {
        let returns = Site::returns(function)?.complete(function)?;
        sites.extend(returns.into_iter().map(|site| (site, program)));
    }
    sites.sort_by_key(|(site, _)| site.address);
    for pair in sites.windows(2) {
        if pair[0].0.end() > pair[1].0.address {
            let reason =
                "it is too short for a probe of its entry and one of its return".to_owned();
            return Err(Error::Unpatchable {
                function: function.name.clone(),
                reason,
            });
        }
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

/// Has each CPU forget instructions that it read ahead. The stop alone does not say so: a thread that was stopped and
/// goes on on the same CPU may return to user space by an instruction that doesn't serialize.
fn synchronize(session: &Session) -> Result<()> {
    session
        .call("membarrier", libc::SYS_membarrier, SYNC_CORE)
        .map(drop)
}
