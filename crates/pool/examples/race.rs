//! The speed of the pools, two threads against each other. A first look; the experiment `pool` is the measurement.

use std::{hint::black_box, sync::Barrier, thread, time::Instant};

use bpfcost_pool::{ArrayQueue, Freelist, PerCpuPool, Pool, Stride, peer};

const PAIRS: u32 = 2_000_000;

fn race(name: &str, threads: usize, pool: &impl Pool) {
    let start = Barrier::new(threads);
    let ns = thread::scope(|scope| {
        let run = |cpu: usize| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let begun = Instant::now();
                for _ in 0..PAIRS {
                    if let Some(object) = pool.pop(cpu) {
                        pool.push(cpu, black_box(object));
                    }
                }
                begun.elapsed().as_nanos() as f64 / f64::from(PAIRS)
            })
        };
        let all: Vec<_> = (0..threads).map(run).collect();
        all.into_iter()
            .map(|one| one.join().expect("it does not panic"))
            .fold(0.0, f64::max)
    });
    println!("{name:20} {threads} threads: {ns:7.1} ns a pair and thread");
}

fn main() -> Result<(), bpfcost_pool::Error> {
    for threads in [1, 2] {
        race("freelist", threads, &Freelist::new(4)?);
        race("array", threads, &ArrayQueue::new(4, 2, Stride::Compact)?);
        race(
            "array-padded",
            threads,
            &ArrayQueue::new(4, 2, Stride::Padded)?,
        );
        race("percpu", threads, &PerCpuPool::new(4, 2)?);
        race("crossbeam-array", threads, &peer::CrossbeamArray::new(4)?);
        race("crossbeam-seg", threads, &peer::CrossbeamSeg::new(4)?);
        race("concurrent", threads, &peer::Concurrent::new(4)?);
        race("mutex", threads, &peer::Mutexed::new(4)?);
    }
    Ok(())
}
