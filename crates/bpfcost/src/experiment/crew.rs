//! Threads that begin together, each on its CPU.

use std::{
    any::Any,
    hint, io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::anyhow;
use bpfcost_bpf::Pinned;

use crate::experiment::{Fault, Problem};

/// Looks at who is here before the CPU is offered to others: some microseconds.
const SPINS: u32 = 256;

/// What a thread's stack takes: they call little, and there may be thousands.
const STACK_BYTES: usize = 256 << 10;

/// What all of a crew share.
#[derive(Debug)]
struct Shared {
    threads: usize,
    gate: Gate,
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
    shared: &'a Shared,
}

impl Member<'_> {
    /// Waits until all are here, and tells since when they are; `None` where it was called off.
    pub(super) fn meet(&self) -> Option<Instant> {
        let gate = &self.shared.gate;
        if gate.here.fetch_add(1, Ordering::AcqRel) + 1 == self.shared.threads {
            // The last one, so nobody else sets it.
            let _ = gate.begun.set(Instant::now());
        }
        let mut spins = 0;
        loop {
            if let Some(begun) = gate.begun.get() {
                return Some(*begun);
            }
            if self.shared.off.load(Ordering::Relaxed) {
                return None;
            }
            spins += 1;
            match spins % SPINS {
                0 => thread::yield_now(),
                _ => hint::spin_loop(),
            }
        }
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
        gate: Gate::default(),
        off: AtomicBool::new(false),
    };
    let (shared, work) = (&shared, &work);
    thread::scope(|scope| {
        let mut all = Vec::with_capacity(threads);
        let mut refused = None;
        for index in 0..threads {
            let cpu = cpus[index % cpus.len()];
            let one = move || {
                let _watched = Watched(shared);
                let member = Member { index, shared };
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
         Measure with fewer, or raise the limit (ulimit -u, pids.max)",
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
