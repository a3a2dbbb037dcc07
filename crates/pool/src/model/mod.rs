//! A model of pools on machines that are not available. The pools' own code runs on simulated threads, and
//! each access to an atomic costs what its cache line costs: little where the core has it, a transfer where
//! another has, and all that wait for one line wait for each other.
//!
//! [`ModelMachine`] is all that the model knows of a machine. The model leaves out prefetchers, frequencies, distances
//! between the cores of one socket, and the order in which a directory serves.

mod line;
mod machine;
mod primitive;
mod random;
mod study;
#[cfg(test)]
mod tests;
mod world;

use core::cell::Cell;
use std::rc::Rc;

use self::{line::Time, primitive::Simulated, study::StudyArray, world::Simulation};
use crate::{ArrayQueue, Error, Freelist, PerCpuPool, Pool, Stride};

pub use machine::ModelMachine;

/// A pool to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelPool {
    /// [`Freelist`].
    Freelist,
    /// [`ArrayQueue`], its slots so far apart.
    Array(Stride),
    /// The array that study 001 published: a look and a compare-and-exchange both ways, and a returned object
    /// goes to any free slot.
    StudyArray,
    /// [`PerCpuPool`].
    PerCpu,
}

/// Pairs of all threads before any is counted.
const WARM_UP: u64 = 100;
/// Further pairs before counting for each thread, so that all have found their place.
const WARM_UP_EACH: u64 = 4;
/// Pairs that are counted, and further ones for each thread.
const COUNTED: u64 = 400;
const COUNTED_EACH: u64 = 12;

/// The same machine and pool always give the same answer.
const SEED: u64 = 1;

/// Pops and pushes per second of all threads together, where each does `work_ns` nanoseconds of something
/// else between one pair and the next. More threads than CPUs take turns, so that no more than those run.
///
/// # Errors
///
/// Returns an error if there can't be such a pool, or no memory for it or for its threads.
pub fn predict(
    kind: ModelPool,
    machine: &ModelMachine,
    threads: u32,
    objects: usize,
    work_ns: f64,
) -> Result<f64, Error> {
    let cpus = machine.cpus() as usize;
    let threads = threads.min(machine.cpus());
    match kind {
        ModelPool::Freelist => {
            let pool = Freelist::<Simulated>::with_primitive(objects)?;
            rate(pool, machine, threads, work_ns)
        }
        ModelPool::Array(stride) => {
            let pool = ArrayQueue::<Simulated>::with_primitive(objects, cpus, stride)?;
            rate(pool, machine, threads, work_ns)
        }
        ModelPool::StudyArray => {
            let pool = StudyArray::<Simulated>::with_primitive(objects, cpus)?;
            rate(pool, machine, threads, work_ns)
        }
        ModelPool::PerCpu => {
            let pool = PerCpuPool::<Simulated>::with_primitive(objects, cpus)?;
            rate(pool, machine, threads, work_ns)
        }
    }
}

/// The progress of a simulation, all threads together.
#[derive(Debug, Default)]
struct SimulationProgress {
    pairs: Cell<u64>,
    /// When counting began, and ended.
    begun: Cell<Time>,
    ended: Cell<Time>,
}

fn rate<P: Pool + 'static>(
    pool: P,
    machine: &ModelMachine,
    threads: u32,
    work_ns: f64,
) -> Result<f64, Error> {
    let warm_up = WARM_UP + WARM_UP_EACH * u64::from(threads);
    let all = warm_up + COUNTED + COUNTED_EACH * u64::from(threads);
    let (pool, progress) = (Rc::new(pool), Rc::new(SimulationProgress::default()));
    let seen = Rc::clone(&progress);
    Simulation::run(machine, threads, SEED, move |world, cpu| {
        while progress.pairs.get() < all {
            world.pass(work_ns);
            let Some(object) = pool.pop(cpu) else {
                Simulation::relax();
                continue;
            };
            pool.push(cpu, object);
            let pairs = progress.pairs.get() + 1;
            progress.pairs.set(pairs);
            if pairs == warm_up {
                progress.begun.set(world.now());
            }
            if pairs == all {
                progress.ended.set(world.now());
            }
        }
    })?;
    let seconds = (seen.ended.get() - seen.begun.get()) as f64 * 1e-12;
    Ok((all - warm_up) as f64 / seconds)
}
