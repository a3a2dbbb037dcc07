//! Threads that begin together, each on its CPU.

use std::{
    any::Any,
    hint, io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use bpfcost_bpf::Pinned;

use crate::experiment::{Fault, Problem};

/// How often a crew meets in a trial: before what is timed, and before what is timed pair by pair.
const MEETINGS: usize = 2;

/// How long a thread waits for an object or for its turn until all is called off. What a thread waits for is
/// with another that is not running just now; that takes time slices, so milliseconds each.
const PATIENCE: Duration = Duration::from_secs(10);

/// Looks at who is here before the CPU is offered to others: some microseconds.
const SPINS: u32 = 256;

/// What a thread's stack takes: they call little, and there may be thousands.
const STACK_BYTES: usize = 256 << 10;

/// What all of a crew share.
#[derive(Debug)]
struct Shared {
    threads: usize,
    gates: [Gate; MEETINGS],
    /// Somebody can't go on, so nobody must wait for them.
    off: AtomicBool,
}

#[derive(Debug, Default)]
struct Gate {
    here: AtomicUsize,
    begun: OnceLock<Instant>,
}

/// One of a crew.
#[derive(Debug)]
pub(super) struct Member<'a> {
    /// Which of the threads.
    pub(super) index: usize,
    /// Which of the run's CPUs it is on.
    pub(super) place: usize,
    shared: &'a Shared,
}

impl Member<'_> {
    /// Waits until all are here, and tells since when they are; `None` where it was called off.
    pub(super) fn meet(&self, meeting: usize) -> Option<Instant> {
        let gate = &self.shared.gates[meeting];
        if gate.here.fetch_add(1, Ordering::AcqRel) + 1 == self.shared.threads {
            // The last one, so nobody else sets it.
            let _ = gate.begun.set(Instant::now());
        }
        let mut spins = 0;
        loop {
            if let Some(begun) = gate.begun.get() {
                return Some(*begun);
            }
            if self.called_off() {
                return None;
            }
            spins += 1;
            match spins % SPINS {
                0 => thread::yield_now(),
                _ => hint::spin_loop(),
            }
        }
    }

    fn called_off(&self) -> bool {
        self.shared.off.load(Ordering::Relaxed)
    }

    /// A wait that is about to begin.
    pub(super) fn wait(&self) -> Wait<'_> {
        Wait {
            member: self,
            since: Instant::now(),
        }
    }
}

/// A wait that has an end.
#[derive(Debug)]
pub(super) struct Wait<'a> {
    member: &'a Member<'a>,
    since: Instant,
}

impl Wait<'_> {
    /// Whether it has lasted too long, for this thread or another.
    pub(super) fn is_over(&self) -> bool {
        if self.since.elapsed() > PATIENCE {
            self.member.shared.off.store(true, Ordering::Relaxed);
        }
        self.member.called_off()
    }
}

/// Calls all off where its thread panics.
struct Watched<'a>(&'a Shared);

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.off.store(true, Ordering::Relaxed);
        }
    }
}

/// Does `work` on so many threads, on the CPUs in turn.
pub(super) fn together<T: Send>(
    cpus: &[u32],
    threads: usize,
    work: impl Fn(&Member) -> T + Sync,
) -> Result<Vec<T>, Fault> {
    let shared = Shared {
        threads,
        gates: Default::default(),
        off: AtomicBool::new(false),
    };
    let (shared, work) = (&shared, &work);
    thread::scope(|scope| {
        let mut all = Vec::with_capacity(threads);
        let mut refused = None;
        for index in 0..threads {
            let place = index % cpus.len();
            let cpu = cpus[place];
            let one = move || {
                let _watched = Watched(shared);
                let member = Member {
                    index,
                    place,
                    shared,
                };
                let pinned = Pinned::to(cpu);
                if pinned.is_err() {
                    shared.off.store(true, Ordering::Relaxed);
                }
                pinned.map(|_pinned| work(&member))
            };
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            match thread.spawn_scoped(scope, one) {
                Ok(thread) => all.push(thread),
                Err(error) => {
                    shared.off.store(true, Ordering::Relaxed);
                    refused = Some(unspawned(index, threads, &error));
                    break;
                }
            }
        }
        let mut done = Vec::with_capacity(threads);
        let mut failed = None;
        for thread in all {
            match thread.join() {
                Ok(Ok(one)) => done.push(one),
                Ok(Err(error)) => failed = Some(Fault::Broken(error.into())),
                Err(panic) => failed = Some(Fault::Invalid(panicked(&*panic))),
            }
        }
        match refused.map(Fault::Broken).or(failed) {
            None => Ok(done),
            Some(fault) => Err(fault),
        }
    })
}

/// That there is no further thread to be had. Not as an error of input and output: it is the machine's.
fn unspawned(index: usize, threads: usize, error: &io::Error) -> anyhow::Error {
    anyhow!("{error}").context(format!(
        "thread {} of {threads} could not be started: this user or this control group may have no more\n  \
         Ask for fewer with --set threads=…, or raise the limit (ulimit -u, pids.max)",
        index + 1
    ))
}

fn panicked(panic: &(dyn Any + Send)) -> Problem {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    Problem {
        check: "threads that came to their end".to_owned(),
        expected: "all".to_owned(),
        got: "a panic".to_owned(),
        detail: text.to_owned(),
    }
}

/// That threads may be kept on each of these CPUs; to be asked before anything is timed.
pub(super) fn may_pin(cpus: &[u32]) -> anyhow::Result<()> {
    for &cpu in cpus {
        Pinned::to(cpu).map(drop).context(
            "threads can't be kept on their CPUs, and then nobody knows what contends with what\n  \
             A container or a filter of system calls may forbid it (sched_setaffinity), or the CPU is not \
             in this process's cpuset: choose others with --cpus, or run it outside",
        )?;
    }
    Ok(())
}
