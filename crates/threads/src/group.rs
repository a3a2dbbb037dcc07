//! Threads that start together, each pinned to its CPU.

use std::{
    any::Any,
    hint,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use bpfcost_bpf::CpuPin;

use bpfcost_model::{Fault, Problem};

/// Number of times that a group meets in a trial: before the timed phase, and before the phase timed pair by pair.
const MEETINGS: usize = 2;

/// Maximum time that a thread waits for an object or for its turn before the whole trial is called off. Such a wait is
/// for another thread that is not running at the moment, so it takes some time slices of milliseconds each.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Looks at who is here before the CPU is offered to others: some microseconds.
const SPINS: u32 = 256;

/// Sleep of a thread that waits for other threads on its own CPU.
const SLEEP: Duration = Duration::from_micros(100);

/// Stack size of a thread: threads have shallow calls, and there may be thousands of them.
const STACK_BYTES: usize = 256 << 10;

/// Maximum memory of a thread. A thread that finds no memory once it runs ends the program, so memory is
/// checked before.
const THREAD_BYTES: usize = 2 * STACK_BYTES;

/// Threads that are about to begin.
#[derive(Clone, Copy, Debug)]
pub struct ThreadGroup<'a> {
    /// They are put on these in turn.
    pub cpus: &'a [u32],
    /// Number of threads.
    pub threads: usize,
    /// Maximum time of each wait.
    pub timeout: Duration,
}

/// State that all threads of a group share.
#[derive(Debug)]
struct GroupState {
    threads: usize,
    /// True if there are more threads than CPUs.
    crowded: bool,
    timeout: Duration,
    gates: [StartGate; MEETINGS],
    /// A thread can't go on, so no other must wait for it.
    off: AtomicBool,
}

#[derive(Debug, Default)]
struct StartGate {
    here: AtomicUsize,
    begun: OnceLock<Instant>,
}

/// One of a group.
#[derive(Debug)]
pub struct Member<'a> {
    /// Which of the threads.
    pub index: usize,
    /// Which of the run's CPUs it is on.
    pub place: usize,
    shared: &'a GroupState,
}

impl Member<'_> {
    /// Waits until all threads are here, and returns when the last one arrived; `None` if called off.
    pub fn meet(&self, meeting: usize) -> Option<Instant> {
        let gate = &self.shared.gates[meeting];
        if gate.here.fetch_add(1, Ordering::AcqRel) + 1 == self.shared.threads {
            // The last one, so no other thread sets it.
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
                // Sleep, rather than run, if other threads have yet to do on this CPU what this one has done.
                0 if meeting > 0 && self.shared.crowded => thread::sleep(SLEEP),
                0 => thread::yield_now(),
                _ => hint::spin_loop(),
            }
        }
    }

    fn called_off(&self) -> bool {
        self.shared.off.load(Ordering::Relaxed)
    }

    /// A wait that is about to begin.
    pub fn wait(&self) -> Wait<'_> {
        Wait {
            member: self,
            since: Instant::now(),
        }
    }
}

/// A wait that has an end.
#[derive(Debug)]
pub struct Wait<'a> {
    member: &'a Member<'a>,
    since: Instant,
}

impl Wait<'_> {
    /// Returns whether this thread or another one has waited too long; if this one has, calls off the trial for all.
    pub fn is_over(&self) -> bool {
        if self.since.elapsed() > self.member.shared.timeout {
            self.member.shared.off.store(true, Ordering::Relaxed);
        }
        self.member.called_off()
    }
}

/// Calls all off where its thread panics.
struct PanicGuard<'a>(&'a GroupState);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.off.store(true, Ordering::Relaxed);
        }
    }
}

impl ThreadGroup<'_> {
    /// Does `work` on each thread; returns the results in their order.
    pub fn work<T: Send>(self, work: impl Fn(&Member) -> T + Sync) -> Result<Vec<T>, Fault> {
        let ThreadGroup {
            cpus,
            threads,
            timeout,
        } = self;
        if !room(threads * THREAD_BYTES) {
            return Err(Fault::Broken(unspawned(0, threads, "out of memory")));
        }
        let shared = GroupState {
            threads,
            crowded: threads > cpus.len(),
            timeout,
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
                    let _watched = PanicGuard(shared);
                    let member = Member {
                        index,
                        place,
                        shared,
                    };
                    let pinned = CpuPin::to(cpu);
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
                        refused = Some(unspawned(index, threads, &error.to_string()));
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
}

/// That there is no further thread to be had. Not as an error of input and output: it is the machine's.
fn unspawned(index: usize, threads: usize, error: &str) -> anyhow::Error {
    anyhow!(
        "thread {} of {threads} could not be started ({error}): this user or cgroup is at its limit, or memory is \
         short\n  Ask for fewer with --case or --set threads=…, or raise the limit \
         (ulimit -u, ulimit -v, pids.max)",
        index + 1
    )
}

fn panicked(panic: &(dyn Any + Send)) -> Problem {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no reason given");
    Problem {
        check: "threads that finished".to_owned(),
        expected: "all".to_owned(),
        got: "a panic".to_owned(),
        detail: text.to_owned(),
    }
}

/// Returns whether so much memory can be allocated now. The memory may be gone a moment later; the check only catches
/// sizes that are far too large.
pub(crate) fn room(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

/// That threads may be kept on each of these CPUs; to be asked before anything is timed.
pub fn may_pin(cpus: &[u32]) -> anyhow::Result<()> {
    for &cpu in cpus {
        CpuPin::to(cpu).map(drop).map_err(|error| {
            anyhow!(
                "{error}: can't pin threads to their CPUs\n  A container or a seccomp filter may forbid \
                 sched_setaffinity, or the CPU is not in this process's cpuset: choose others with --cpus, or run it \
                 outside the container"
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(threads: usize) -> Vec<u32> {
        let cpus = bpfcost_bpf::allowed_cpus();
        let group = ThreadGroup {
            cpus: &cpus,
            threads,
            timeout: WAIT_TIMEOUT,
        };
        let seen = group.work(|member| {
            let begun = member.meet(0);
            (member.index as u32, begun)
        });
        let seen = seen.expect("they come to their end");
        assert!(
            seen.iter()
                .all(|(_, begun)| *begun == seen[0].1 && begun.is_some())
        );
        seen.into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn all_begin_at_the_same_moment() {
        for threads in [1, 2, 3, 33] {
            let expected: Vec<u32> = (0..threads as u32).collect();
            assert_eq!(group(threads), expected);
        }
    }

    /// One that panics must not leave the others waiting, nor end the program.
    #[test]
    fn a_panic_is_a_finding() {
        let cpus = bpfcost_bpf::allowed_cpus();
        let group = ThreadGroup {
            cpus: &cpus,
            threads: 3,
            timeout: WAIT_TIMEOUT,
        };
        let outcome = group.work(|member| {
            assert!(member.index != 1, "on purpose");
            member.meet(0).is_some()
        });
        match outcome {
            Err(Fault::Invalid(problem)) => assert!(problem.detail.contains("on purpose")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_breaks_it_with_advice() {
        let error = may_pin(&[1_000_000]).expect_err("no machine has it");
        assert!(format!("{error:#}").contains("--cpus"), "{error:#}");
        let group = ThreadGroup {
            cpus: &[1_000_000],
            threads: 2,
            timeout: WAIT_TIMEOUT,
        };
        let outcome = group.work(|member| member.meet(0).is_some());
        assert!(matches!(outcome, Err(Fault::Broken(_))), "{outcome:?}");
    }
}
