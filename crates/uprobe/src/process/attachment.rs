//! Probes on a function: attached and detached while all of the process's threads are stopped.
//!
//! A thread that is between two instructions which a jump replaces is moved to the second one's copy. One whose
//! signal handler will return there lets the attachment wait. On detaching, the bytes are restored and the threads
//! go on at once: what was made in the process stays, so a thread that is in a probe leaves it when it likes.

use super::{
    error::{Error, Result},
    image::Function,
    layout::{STATE_LOCK, STATE_OWNERS},
    maps::mappings,
    remote::Remote,
    runtime::{Counts, Known, Program, Replaced, Runtime, jump},
    site::{JUMP, Site, When},
    stopped::{Registers, Stopped},
};
use std::{collections::BTreeSet, thread, time::Duration};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`.
const SYNC_CORE: u64 = 1 << 5;
/// How often an attachment waits for handlers to return, and how long at a time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_micros(300);
/// How much of a stack is searched for saved registers.
const STACK: u64 = 1 << 20;
/// The selector of 64-bit code.
const CS: u64 = 0x33;

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
    function: Function,
    known: Vec<Known>,
}

/// Probes on one function.
#[derive(Debug)]
#[must_use = "it stays attached until it is given to Runtime::detach"]
pub struct Attachment {
    /// How long all of the process was stopped for it.
    pub stopped: Duration,
    addresses: Vec<u64>,
    entry: Option<(u64, Counts)>,
    returns: Option<(u64, Counts)>,
    inside: Vec<(u64, Counts)>,
}

/// What an attachment did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    /// At the function's entry.
    pub entry: Counts,
    /// At its returns.
    pub returns: Counts,
    /// At all of its instructions inside.
    pub inside: Counts,
}

impl Runtime {
    /// Attaches programs to a function.
    pub fn attach(&mut self, probe: &Probe<'_>) -> Result<Attachment> {
        let prepared = self.prepare(probe)?;
        for _ in 1..TRIES {
            let stopped = Stopped::all(self.pid)?;
            match self.attach_in(&stopped, &prepared) {
                Err(Error::SavedAddress { .. }) => {}
                other => return other,
            }
            drop(stopped);
            thread::sleep(PAUSE);
        }
        self.attach_in(&Stopped::all(self.pid)?, &prepared)
    }

    /// Makes the code of probes, for [`Self::attach_in`]. The process goes on meanwhile.
    pub fn prepare(&mut self, probe: &Probe<'_>) -> Result<Prepared> {
        let function = probe.function;
        let mut sites: Vec<(Site, Program, Option<u64>)> = Vec::new();
        if let Some(program) = probe.entry {
            sites.push((Site::entry(function)?, program, None));
        }
        if let Some(program) = probe.returns {
            let returns = Site::returns(function)?.complete(function)?;
            sites.extend(returns.into_iter().map(|site| (site, program, None)));
        }
        for inside in probe.inside {
            let site = Site::at(function, inside.offset)?;
            sites.push((site, inside.program, inside.semaphore));
        }
        sites.sort_by_key(|(site, ..)| site.address);
        for pair in sites.windows(2) {
            if pair[0].0.end() > pair[1].0.address {
                let offset = |site: &Site| site.probed() - function.address;
                let (one, other) = (offset(&pair[0].0), offset(&pair[1].0));
                let reason = if (pair[0].0.when, pair[1].0.when) == (When::Entry, When::Return) {
                    "it is too short for a probe of its entry and one of its return".to_owned()
                } else {
                    format!("the jumps for +{one:#x} and +{other:#x} would overlap")
                };
                return Err(Error::Unpatchable {
                    function: function.name.clone(),
                    reason,
                });
            }
        }
        self.check(function)?;
        let known = sites.iter().map(|(site, program, semaphore)| {
            let mut known = self.trampoline(function, site, *program)?;
            known.semaphore = *semaphore;
            Ok(known)
        });
        Ok(Prepared {
            function: function.clone(),
            known: known.collect::<Result<_>>()?,
        })
    }

    /// Attaches probes while the process is stopped. [`Error::SavedAddress`] says that it has to go on first.
    pub fn attach_in(&mut self, stopped: &Stopped, prepared: &Prepared) -> Result<Attachment> {
        self.check(&prepared.function)?;
        for known in &prepared.known {
            let (start, end) = (known.site.address, known.site.end());
            let touches =
                |&(&other, _): &(&u64, &Replaced)| other < end && start < other + JUMP as u64;
            if self.replaced.iter().any(|one| touches(&one)) {
                let reason = "this program probes it already".to_owned();
                return Err(Error::Unpatchable {
                    function: prepared.function.name.clone(),
                    reason,
                });
            }
        }
        let threads: Vec<(i32, Registers)> = stopped
            .threads()
            .map(|tid| Ok((tid, stopped.registers(tid)?)))
            .collect::<Result<_>>()?;
        self.check_threads(&threads)?;
        for known in &prepared.known {
            self.check_stacks(&threads, known)?;
        }
        self.release_areas(&threads)?;

        for (tid, mut registers) in threads {
            let at = prepared
                .known
                .iter()
                .find(|known| known.site.is_inside(registers.rip));
            let moved =
                at.map(|known| known.moved.iter().find(|&&(from, _)| from == registers.rip));
            match moved {
                Some(Some(&(_, to))) => registers.rip = to,
                Some(None) => {
                    let reason = format!("thread {tid} is inside of one of its first instructions");
                    return Err(Error::Unpatchable {
                        function: prepared.function.name.clone(),
                        reason,
                    });
                }
                None if registers.gs_base != 0 => continue,
                None => {}
            }
            if registers.gs_base == 0 {
                registers.gs_base = self.areas.layout.control(0);
            }
            stopped.set_registers(tid, registers)?;
        }
        let mut remote = Remote::new(stopped, &self.memory)?;
        let counts = |when| {
            let known = prepared
                .known
                .iter()
                .find(|known| known.site.when == when)?;
            Some((known.slot, self.count(known.slot)))
        };
        let (entry, returns) = (counts(When::Entry), counts(When::Return));
        let inside = prepared
            .known
            .iter()
            .filter(|known| known.site.when == When::Inside)
            .map(|known| (known.slot, self.count(known.slot)))
            .collect();
        for (index, known) in prepared.known.iter().enumerate() {
            if let Err(error) = self.write_jump(known) {
                for undone in &prepared.known[..=index] {
                    self.undo_jump(undone);
                }
                for Known { semaphore, .. } in &prepared.known[..index] {
                    let _ = semaphore.map(|at| self.memory.count(at, false));
                }
                return Err(error);
            }
        }
        synchronize(&mut remote)?;
        remote.finish()?;
        let addresses = prepared
            .known
            .iter()
            .map(|known| known.site.address)
            .collect();
        Ok(Attachment {
            stopped: stopped.duration(),
            addresses,
            entry,
            returns,
            inside,
        })
    }

    /// Raises a site's semaphore and writes its jump.
    fn write_jump(&mut self, known: &Known) -> Result<()> {
        let address = known.site.address;
        let jump = jump(self.pid, address, known.entry)?;
        let replaced = Replaced {
            original: known.site.original,
            jump,
            semaphore: known.semaphore,
        };
        self.lead_back(address, &known.moved)?;
        self.reaper.add(self.pid, address, &replaced)?;
        self.replaced.insert(address, replaced);
        if let Some(semaphore) = known.semaphore {
            self.memory.count(semaphore, true)?;
        }
        let written = self.memory.write(address, &jump);
        if let (Err(_), Some(semaphore)) = (&written, known.semaphore) {
            self.memory.count(semaphore, false)?;
        }
        written
    }

    /// Undoes it, apart from the semaphore.
    fn undo_jump(&mut self, known: &Known) {
        let address = known.site.address;
        let _ = self.memory.write(address, &known.site.original);
        let _ = self.lead_back(address, &[]);
        self.replaced.remove(&address);
        self.reaper.remove(address);
    }

    /// Restores a function. Returns what its probes did. Of a process that exited, or runs another program, there is
    /// nothing to restore.
    pub fn detach(&mut self, attachment: Attachment) -> Result<Hits> {
        match Stopped::all(self.pid) {
            Ok(stopped) => self.detach_in(&stopped, attachment),
            Err(Error::NoProcess { .. } | Error::Gone { .. }) => {
                self.forget(&attachment);
                Ok(self.hits(&attachment))
            }
            Err(error) => Err(error),
        }
    }

    /// Restores a function while the process is stopped.
    pub fn detach_in(&mut self, stopped: &Stopped, attachment: Attachment) -> Result<Hits> {
        let mut changed = Ok(());
        for address in &attachment.addresses {
            let Some(replaced) = self.replaced.get(address) else {
                continue;
            };
            let mut bytes = [0; JUMP];
            match self.memory.read(*address, &mut bytes) {
                // Another program, or the library was unmapped.
                Err(_) => continue,
                Ok(()) if bytes == replaced.jump => {
                    self.memory.write(*address, &replaced.original)?
                }
                Ok(()) if bytes == replaced.original => {}
                Ok(()) => {
                    changed = Err(Error::Changed {
                        function: format!("the jump at {address:#x}"),
                        offset: 0,
                        expected: replaced.jump[0],
                        found: bytes[0],
                    });
                }
            }
            if let Some(semaphore) = replaced.semaphore {
                self.memory.count(semaphore, false)?;
            }
            self.lead_back(*address, &[])?;
        }
        self.forget(&attachment);
        match Remote::new(stopped, &self.memory) {
            Ok(mut remote) => {
                synchronize(&mut remote)?;
                remote.finish()?;
            }
            Err(Error::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        changed.map(|()| self.hits(&attachment))
    }

    /// What an attachment's probes did so far. May be called at any time, also after the process's end.
    pub fn hits(&self, attachment: &Attachment) -> Hits {
        let since = |starts: &[(u64, Counts)]| {
            let mut sum = Counts::default();
            for &(slot, before) in starts {
                let now = self.count(slot);
                sum.hits += now.hits - before.hits;
                sum.missed += now.missed - before.missed;
            }
            sum
        };
        Hits {
            entry: since(attachment.entry.as_slice()),
            returns: since(attachment.returns.as_slice()),
            inside: since(&attachment.inside),
        }
    }

    fn forget(&mut self, attachment: &Attachment) {
        for address in &attachment.addresses {
            self.replaced.remove(address);
            self.reaper.remove(*address);
        }
    }

    /// An error where a function isn't the file's, apart from our own jumps.
    fn check(&self, function: &Function) -> Result<()> {
        function.check_except(&self.memory, |address| {
            let (&start, replaced) = self.replaced.range(..=address).next_back()?;
            replaced.original.get((address - start) as usize).copied()
        })
    }

    /// An error where a thread can't run probes.
    fn check_threads(&self, threads: &[(i32, Registers)]) -> Result<()> {
        let pid = self.pid;
        let mut bases = BTreeSet::new();
        for (tid, registers) in threads {
            if registers.cs != CS {
                return Err(Error::Architecture { pid });
            }
            if registers.gs_base != 0 && self.areas.layout.index(registers.gs_base).is_none() {
                return Err(Error::GsTaken { pid, tid: *tid });
            }
            if registers.fs_base == 0 || !bases.insert(registers.fs_base) {
                return Err(Error::FsShared { pid });
            }
        }
        Ok(())
    }

    /// An error where a signal handler will return into bytes that are replaced.
    fn check_stacks(&self, threads: &[(i32, Registers)], known: &Known) -> Result<()> {
        let inside = |address: u64| known.site.is_inside(address);
        if !known.moved.iter().any(|&(from, _)| inside(from)) {
            return Ok(());
        }
        let all = mappings(self.pid)?;
        for (tid, registers) in threads {
            let Some(stack) = all.iter().find(|mapping| mapping.contains(registers.rsp)) else {
                continue;
            };
            // Signal frames are aligned to 8 bytes, as stack pointers are.
            let start = registers.rsp & !7;
            let bytes = self.memory.read_vec(
                start,
                stack.end.min(start + STACK).saturating_sub(start) as usize,
            )?;
            let words: Vec<u64> = bytes
                .chunks_exact(8)
                .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
                .collect();
            // The saved instruction pointer, flags and selectors lie in this order.
            if words
                .windows(3)
                .any(|three| inside(three[0]) && three[2] & 0xffff == CS)
            {
                return Err(Error::SavedAddress {
                    function: known.site.function.clone(),
                    tid: *tid,
                });
            }
        }
        Ok(())
    }

    /// Gives the areas of threads that ended to others.
    fn release_areas(&self, threads: &[(i32, Registers)]) -> Result<()> {
        let layout = self.areas.layout;
        let mut lock = [0; 4];
        self.memory
            .read(layout.base + STATE_LOCK as u64, &mut lock)?;
        if lock != [0; 4] {
            return Ok(()); // A thread is about to take one.
        }
        let table = layout.base + STATE_OWNERS as u64;
        let owners = self.memory.read_vec(table, 8 * layout.areas as usize)?;
        for (index, owner) in owners.chunks_exact(8).enumerate() {
            let owner = u64::from_le_bytes(owner.try_into().expect("8 bytes"));
            if owner != 0
                && !threads
                    .iter()
                    .any(|(_, registers)| registers.fs_base == owner)
            {
                self.memory.write(table + 8 * index as u64, &[0; 8])?;
            }
        }
        Ok(())
    }
}

/// Has each CPU forget instructions that it read ahead. The stop alone does not say so: a thread that was stopped and
/// goes on on the same CPU may return to user space by an instruction that doesn't serialize.
fn synchronize(remote: &mut Remote<'_>) -> Result<()> {
    remote
        .call(
            "membarrier",
            libc::SYS_membarrier,
            [SYNC_CORE, 0, 0, 0, 0, 0],
        )
        .map(drop)
}
