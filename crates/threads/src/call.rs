//! The system calls: one that returns at once, and one in which all threads wait together.
//!
//! `flock` is the study's: an unlock of a lock that is not held, on a file per thread. `sleep` reads an event
//! counter at zero, which waits inside the function until another thread adds to it. Once all threads are asleep,
//! all are woken. So in each round all of them were inside at once, and with fewer instances than threads the rest
//! must be missed, the same number in each round.

use std::{
    fs, io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, AtomicI32, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{FlockOperation, MemfdFlags, flock, memfd_create},
    io::{Errno, read, write},
    thread::gettid,
};

use crate::group::{ThreadGroup, WAIT_TIMEOUT};
use bpfcost_model::{Batch, Fault};

/// The largest batch of calls that sleep; a counter could hold more.
const MAX_ROUNDS: u64 = 1 << 16;

/// Count that lets a thread through all the rest of its calls.
const ALL_THE_REST: u64 = 1 << 32;

/// Calls that return at once come in sets of so many, so that threads meet inside: more than a thread makes
/// before the last of them has begun.
const SET: u64 = 256;

/// A system call that many threads make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syscall {
    /// Returns at once.
    Flock,
    /// Waits inside, until all threads do.
    Sleep,
}

impl Syscall {
    /// All of them, in the order of tables.
    pub const ALL: [Syscall; 2] = [Syscall::Flock, Syscall::Sleep];

    /// As cases are named.
    pub fn name(self) -> &'static str {
        match self {
            Syscall::Flock => "flock",
            Syscall::Sleep => "sleep",
        }
    }

    /// Description of the call, in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Syscall::Flock => "a call that returns at once: flock(2)",
            Syscall::Sleep => {
                "a call in which all threads wait together: read(2) of an event counter"
            }
        }
    }

    /// The function of the kernel that each call enters once.
    pub fn function(self) -> &'static str {
        match self {
            Syscall::Flock if cfg!(target_arch = "aarch64") => "__arm64_sys_flock",
            Syscall::Flock => "__x64_sys_flock",
            Syscall::Sleep => "eventfd_read",
        }
    }

    /// A batch of whole sets.
    pub fn whole(self, batch: Batch) -> Batch {
        match self {
            Syscall::Flock => Batch(batch.0.next_multiple_of(SET)),
            Syscall::Sleep => batch,
        }
    }

    /// The largest batch, where there is one.
    pub fn most(self) -> Option<u64> {
        (self == Syscall::Sleep).then_some(MAX_ROUNDS)
    }
}

/// Files that the threads call, one descriptor for each thread.
pub struct CallThreads {
    call: Syscall,
    files: Vec<OwnedFd>,
    cpus: Vec<u32>,
}

/// The result of some calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallResult {
    /// Calls of all threads that returned as they should.
    pub calls: u64,
    /// Rounds in which all threads were asleep at once.
    pub rounds: u64,
    /// From when all threads were there until the last was done.
    pub elapsed: Duration,
}

impl CallThreads {
    /// Opens what so many threads call, on those CPUs in turn.
    pub fn open(call: Syscall, threads: u32, cpus: &[u32]) -> Result<Self> {
        let open = |_| match call {
            Syscall::Flock => memfd_create("bpfcost", MemfdFlags::CLOEXEC),
            Syscall::Sleep => eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE),
        };
        let files: Result<_, Errno> = (0..threads).map(open).collect();
        Ok(CallThreads {
            call,
            files: files.with_context(|| {
                format!("opening a file for each of {threads} threads (the limit is ulimit -n)")
            })?,
            cpus: cpus.to_owned(),
        })
    }

    /// Has every thread make a batch of calls.
    pub fn make(&self, batch: Batch) -> Result<CallResult, Fault> {
        match self.call {
            Syscall::Flock => {
                let unlock = |file: &OwnedFd| flock(file, FlockOperation::Unlock);
                self.together(batch, |_| {}, unlock)
            }
            Syscall::Sleep => self.asleep(batch),
        }
    }

    fn together(
        &self,
        batch: Batch,
        before: impl Fn(usize) + Sync,
        one: impl Fn(&OwnedFd) -> Result<(), Errno> + Sync,
    ) -> Result<CallResult, Fault> {
        let group = ThreadGroup {
            cpus: &self.cpus,
            threads: self.files.len(),
            timeout: WAIT_TIMEOUT,
        };
        let threads = group.work(|member| {
            let file = &self.files[member.index];
            before(member.index);
            let begun = member.meet(0)?;
            let calls = (0..batch.0).filter(|_| one(file).is_ok()).count();
            Some((begun, Instant::now(), calls as u64))
        })?;
        let threads: Vec<_> = threads.into_iter().flatten().collect();
        let begun = threads.iter().map(|(begun, _, _)| *begun).min();
        let ended = threads.iter().map(|(_, ended, _)| *ended).max();
        Ok(CallResult {
            calls: threads.iter().map(|(_, _, calls)| calls).sum(),
            rounds: 0,
            elapsed: begun
                .zip(ended)
                .map_or(Duration::ZERO, |(begun, ended)| ended - begun),
        })
    }

    fn asleep(&self, batch: Batch) -> Result<CallResult, Fault> {
        let numbers: Vec<AtomicI32> = self.files.iter().map(|_| AtomicI32::new(0)).collect();
        let over = AtomicBool::new(false);
        let tell = |index: usize| {
            numbers[index].store(gettid().as_raw_nonzero().get(), Ordering::Release);
        };
        let wait = |file: &OwnedFd| read(file, &mut [0u8; 8]).map(drop);
        thread::scope(|scope| {
            let waker = scope.spawn(|| self.wake(batch, &numbers, &over));
            let made = self.together(batch, tell, wait);
            over.store(true, Ordering::Relaxed);
            let rounds = waker.join().unwrap_or(Ok(0));
            let (made, rounds) = (made?, rounds.context("waking the sleeping threads")?);
            Ok(CallResult { rounds, ..made })
        })
    }

    /// Wakes all threads each time that all are asleep: how often that was.
    fn wake(&self, batch: Batch, numbers: &[AtomicI32], over: &AtomicBool) -> io::Result<u64> {
        let woken = (0..batch.0).try_for_each(|round| {
            if !all_asleep(numbers, over).map_err(|error| (round, Some(error)))? {
                return Err((round, None));
            }
            self.add(1).map_err(|error| (round, Some(error)))
        });
        let Err((rounds, error)) = woken else {
            return Ok(batch.0);
        };
        // No thread must sleep for ever.
        self.add(ALL_THE_REST)?;
        error.map_or(Ok(rounds), Err)
    }

    fn add(&self, count: u64) -> io::Result<()> {
        for file in &self.files {
            write(file, &count.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// Waits until every thread sleeps; `false` where that takes too long, or is no more to be. One that is woken
/// is no sleeper from that moment on, even before it runs.
fn all_asleep(numbers: &[AtomicI32], over: &AtomicBool) -> io::Result<bool> {
    let since = Instant::now();
    for number in numbers {
        loop {
            let tid = number.load(Ordering::Acquire);
            if tid != 0 && is_asleep(tid)? {
                break;
            }
            if over.load(Ordering::Relaxed) || since.elapsed() > WAIT_TIMEOUT {
                return Ok(false);
            }
            thread::yield_now();
        }
    }
    Ok(true)
}

/// Returns whether a thread of this process is in an interruptible sleep (state `S`). Waits for locks and pages are in
/// other states.
fn is_asleep(number: i32) -> io::Result<bool> {
    let line = match fs::read_to_string(format!("/proc/self/task/{number}/stat")) {
        Ok(line) => line,
        // The thread has ended.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // `7 (a name) S …`; the name may have any characters.
    let state = line
        .rsplit_once(") ")
        .map(|(_, rest)| rest.starts_with('S'));
    Ok(state == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(call: Syscall, threads: u32, calls: u64) -> CallResult {
        let cpus = bpfcost_bpf::allowed_cpus();
        let opened = CallThreads::open(call, threads, &cpus).expect("files");
        opened.make(Batch(calls)).expect("calls")
    }

    #[test]
    fn every_thread_makes_its_calls() {
        let flock = made(Syscall::Flock, 3, 50);
        assert_eq!((flock.calls, flock.rounds), (150, 0));
        assert!(flock.elapsed > Duration::ZERO);
    }

    #[test]
    fn all_sleep_at_once_in_each_round() {
        let sleep = made(Syscall::Sleep, 5, 20);
        assert_eq!((sleep.calls, sleep.rounds), (100, 20));
    }

    /// No thread is left asleep where another never comes.
    #[test]
    fn waking_ends_with_the_threads() {
        let calls = CallThreads::open(Syscall::Sleep, 1, &[0]).expect("files");
        let over = AtomicBool::new(true);
        let rounds = calls.wake(Batch(3), &[AtomicI32::new(0)], &over);
        assert_eq!(rounds.expect("an answer"), 0);
        let mut count = [0; 8];
        assert_eq!(read(&calls.files[0], &mut count), Ok(8), "it would wait");
    }
}
