//! Many operations by four times as many threads as there are CPUs, which the kernel interrupts all the time:
//! at the end every object is there.
//!
//! A thread on each CPU wakes every 50 µs or so and preempts the thread that runs there. The kernel counts how
//! often that happens, and to threads that hold an object. `make soak` runs the long form.
#![cfg(all(target_os = "linux", not(miri)))]

use std::{
    env, hint,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bpfcost_pool::{ArrayQueue, Freelist, PerCpuPool, Pool, Stride};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::resource::{UsageWho, getrusage},
    unistd::Pid,
};

/// Pairs of each pool where `BPFCOST_SOAK` names no other number.
const PAIRS: u64 = 2_000_000;
/// One pair in this many is held until its thread has been interrupted.
const HELD: u64 = 1 << 16;
/// The interval at which a CPU is taken.
const WAKE: Duration = Duration::from_micros(50);
/// The time after which a thread that was never interrupted fails the test; four threads share a CPU.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The owner of an object, and the number of its owners so far. Loads and stores only: if two own it, one sees the
/// other.
#[derive(Default)]
#[repr(align(128))]
struct Owned {
    by: AtomicUsize,
    times: AtomicUsize,
}

impl Owned {
    fn begin(&self, me: usize) {
        let by = self.by.load(Relaxed);
        assert!(by == 0, "thread {me} was given what thread {by} has");
        self.by.store(me, Relaxed);
        self.times.store(self.times.load(Relaxed) + 1, Relaxed);
    }

    fn end(&self, me: usize) {
        let by = self.by.load(Relaxed);
        assert!(by == me, "thread {by} was given what thread {me} has");
        self.by.store(0, Relaxed);
    }
}

/// The counts of a thread, or of all of them.
#[derive(Default)]
struct Count {
    pairs: u64,
    misses: u64,
    /// Times that the kernel took the CPU away, and of these while the thread had an object.
    interrupted: u64,
    interrupted_holding: u64,
}

impl Count {
    fn and(self, other: Count) -> Count {
        Count {
            pairs: self.pairs + other.pairs,
            misses: self.misses + other.misses,
            interrupted: self.interrupted + other.interrupted,
            interrupted_holding: self.interrupted_holding + other.interrupted_holding,
        }
    }
}

/// The number of times that the CPU was taken from this thread.
fn interrupted() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel keeps it for each thread");
    usage.involuntary_context_switches() as u64
}

fn work(pool: &impl Pool, owned: &[Owned], thread: usize, pairs: u64) -> Count {
    let me = thread + 1;
    let mut count = Count::default();
    let before = interrupted();
    while count.pairs < pairs {
        let Some(object) = pool.pop(thread) else {
            count.misses += 1;
            // Those who have them don't run.
            thread::sleep(Duration::from_micros(1));
            continue;
        };
        let index = object.index();
        owned[index].begin(me);
        if count.pairs % HELD == 0 {
            let (now, begun) = (interrupted(), Instant::now());
            while interrupted() == now {
                assert!(begun.elapsed() < TIMEOUT, "nothing interrupts this thread");
                hint::spin_loop();
            }
            count.interrupted_holding += 1;
        }
        owned[index].end(me);
        pool.push(thread, object);
        count.pairs += 1;
    }
    count.interrupted = interrupted() - before;
    count
}

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("a thread may ask for its own");
    (0..CpuSet::count())
        .filter(|cpu| allowed.is_set(*cpu) == Ok(true))
        .collect()
}

fn soak<P: Pool>(name: &str, make: impl Fn(usize, usize) -> Result<P, bpfcost_pool::Error>) {
    let asked = env::var("BPFCOST_SOAK").map(|text| text.parse());
    let pairs: u64 = asked.map_or(PAIRS, |asked| {
        asked.expect("BPFCOST_SOAK is a number of pairs")
    });
    let cpus = cpus();
    let threads = 4 * cpus.len();
    // Fewer than threads: some find none.
    let objects = 3 * cpus.len();
    let pool = make(objects, cpus.len()).expect("it is small");
    let owned: Vec<Owned> = (0..objects).map(|_| Owned::default()).collect();
    let (start, done) = (Barrier::new(threads), AtomicBool::new(false));
    let begun = Instant::now();
    let all = thread::scope(|scope| {
        for cpu in &cpus {
            let (done, mut only) = (&done, CpuSet::new());
            only.set(*cpu).expect("it is one of the set");
            scope.spawn(move || {
                sched_setaffinity(Pid::from_raw(0), &only).expect("it is allowed there");
                while !done.load(Relaxed) {
                    thread::sleep(WAKE);
                }
            });
        }
        let run = |thread: usize| {
            let (pool, owned, start) = (&pool, &owned, &start);
            scope.spawn(move || {
                start.wait();
                work(pool, owned, thread, pairs.div_ceil(threads as u64))
            })
        };
        let workers: Vec<_> = (0..threads).map(run).collect();
        let ends: Vec<_> = workers.into_iter().map(|one| one.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter()
            .map(|end| end.expect("no worker panics"))
            .fold(Count::default(), Count::and)
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut found = vec![0_u64; objects];
    while let Some(object) = pool.pop(0) {
        found[object.index()] += 1;
    }
    let times: usize = owned.iter().map(|owned| owned.times.load(Relaxed)).sum();
    println!(
        "{name}: {} pairs by {threads} threads on {} CPUs in {seconds:.1} s; {} misses; interrupted {} times, \
         seen to hold an object in {}; {} of {objects} objects there",
        all.pairs,
        cpus.len(),
        all.misses,
        all.interrupted,
        all.interrupted_holding,
        found.iter().filter(|times| **times == 1).count(),
    );
    assert_eq!(found, vec![1; objects], "times that each came out");
    assert_eq!(times as u64, all.pairs, "an object had two owners");
    assert!(all.interrupted_holding >= threads as u64);
}

/// One after the other, so that each has the machine.
#[test]
fn every_object_is_there_after_all() {
    soak("freelist", |objects, _| Freelist::new(objects));
    soak("array", |objects, cpus| {
        ArrayQueue::new(objects, cpus, Stride::Compact)
    });
    soak("array-padded", |objects, cpus| {
        ArrayQueue::new(objects, cpus, Stride::Padded)
    });
    soak("percpu", PerCpuPool::new);
}
