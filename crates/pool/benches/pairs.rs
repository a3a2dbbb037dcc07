//! The cost of a pop-and-push pair: `cargo bench -p bpfcost-pool --features peers --bench pairs [POOL…]`.
//!
//! Every pool in turn, round after round, so that all meet the same machine; beside the ns stands the ratio to
//! crossbeam's `ArrayQueue` in the same round, both as the median of all rounds. A look while the pools are
//! worked on: the experiment `pool` measures, with intervals and verdicts.

use std::{
    hint::black_box,
    num::NonZero,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use bpfcost_pool::{ArrayQueue, Error, Freelist, PerCpuPool, Pool, Stride, peer};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Rounds, and how long each pool runs in one. Where a CPU has one thread: short, so that some windows pass
/// undisturbed.
const ALONE: (usize, Duration) = (75, Duration::from_millis(3));
/// Rounds and their length for threads that share CPUs: long enough for each of them to have its turn.
const SHARED: (usize, Duration) = (15, Duration::from_millis(25));
/// Pairs between two looks at the clock's flag.
const CHUNK: u64 = 64;
const PEER: &str = "crossbeam-array";

/// Runs a pool of `objects` objects under the threads and CPUs of `group`.
type PoolRunner = fn(objects: usize, group: RaceSetup) -> Result<RaceResult, Error>;

const POOLS: [(&str, PoolRunner); 8] = [
    ("freelist", |o, group| Ok(race(&Freelist::new(o)?, group))),
    ("array", |o, group| {
        Ok(race(
            &ArrayQueue::new(o, group.cpus, Stride::Compact)?,
            group,
        ))
    }),
    ("array-padded", |o, group| {
        Ok(race(
            &ArrayQueue::new(o, group.cpus, Stride::Padded)?,
            group,
        ))
    }),
    ("percpu", |o, group| {
        Ok(race(&PerCpuPool::new(o, group.cpus)?, group))
    }),
    (PEER, |o, group| {
        Ok(race(&peer::CrossbeamArray::new(o)?, group))
    }),
    ("crossbeam-seg", |o, group| {
        Ok(race(&peer::CrossbeamSeg::new(o)?, group))
    }),
    ("concurrent", |o, group| {
        Ok(race(&peer::Concurrent::new(o)?, group))
    }),
    ("mutex", |o, group| Ok(race(&peer::Mutexed::new(o)?, group))),
];

/// Threads, the CPUs that they run on, and the time for which they run.
#[derive(Clone, Copy)]
struct RaceSetup {
    threads: usize,
    cpus: usize,
    window: Duration,
}

/// The result of all threads together.
#[derive(Clone, Copy)]
struct RaceResult {
    ns_per_pair_and_thread: f64,
    misses_per_pair: f64,
}

fn race(pool: &impl Pool, group: RaceSetup) -> RaceResult {
    let RaceSetup {
        threads,
        cpus,
        window,
    } = group;
    let start = Barrier::new(threads + 1);
    let stop = AtomicBool::new(false);
    let (ns, pairs, misses) = thread::scope(|scope| {
        let run = |thread: usize| {
            let (start, stop) = (&start, &stop);
            scope.spawn(move || {
                let cpu = thread % cpus;
                let mut own = CpuSet::new();
                own.set(cpu);
                sched_setaffinity(None, &own).expect("threads may be pinned");
                let (mut turns, mut misses) = (0, 0);
                start.wait();
                let begun = Instant::now();
                while !stop.load(Relaxed) {
                    for _ in 0..CHUNK {
                        match pool.pop(cpu) {
                            Some(object) => pool.push(cpu, black_box(object)),
                            None => misses += 1,
                        }
                    }
                    turns += CHUNK;
                }
                (begun.elapsed(), turns - misses, misses)
            })
        };
        let all: Vec<_> = (0..threads).map(run).collect();
        start.wait();
        thread::sleep(window);
        stop.store(true, Relaxed);
        all.into_iter()
            .map(|one| one.join().expect("it does not panic"))
            .fold((0.0, 0, 0), |(ns, pairs, misses), (time, p, m)| {
                (ns + time.as_nanos() as f64, pairs + p, misses + m)
            })
    });
    RaceResult {
        ns_per_pair_and_thread: ns / pairs as f64,
        misses_per_pair: misses as f64 / pairs as f64,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Error> {
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let wanted = |name: &str| name == PEER || asked.is_empty() || asked.iter().any(|a| a == name);
    let pools: Vec<_> = POOLS.into_iter().filter(|(name, _)| wanted(name)).collect();
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    println!("threads objects pool             ns a pair and thread   × {PEER}   misses a pair");
    for threads in [1, 2, 4, 8] {
        let (times, window) = if threads <= cpus { ALONE } else { SHARED };
        let group = RaceSetup {
            threads,
            cpus,
            window,
        };
        for objects in [1, 2, 4].map(|each| each * cpus) {
            let mut rounds = Vec::new();
            for round in 0..times {
                let mut seen = vec![None; pools.len()];
                for turn in 0..pools.len() {
                    let which = (round + turn) % pools.len();
                    seen[which] = Some(pools[which].1(objects, group)?);
                }
                rounds.push(
                    seen.into_iter()
                        .map(|one| one.expect("each had its turn"))
                        .collect::<Vec<_>>(),
                );
            }
            let peer = pools
                .iter()
                .position(|(name, _)| *name == PEER)
                .expect("it is always there");
            for (which, (name, _)) in pools.iter().enumerate() {
                let of = |value: fn(&RaceResult) -> f64| {
                    rounds.iter().map(move |round| value(&round[which]))
                };
                let ns = median(of(|seen| seen.ns_per_pair_and_thread).collect());
                let misses = median(of(|seen| seen.misses_per_pair).collect());
                let ratio = median(
                    rounds
                        .iter()
                        .map(|round| {
                            round[which].ns_per_pair_and_thread / round[peer].ns_per_pair_and_thread
                        })
                        .collect(),
                );
                println!(
                    "{threads:7} {objects:7} {name:16} {ns:20.1}   {ratio:17.2}   {misses:13.4}"
                );
            }
        }
    }
    Ok(())
}
