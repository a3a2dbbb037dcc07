//! The measured pools, by name.

use bpfcost_pool::{ArrayQueue, Error, Freelist, PerCpuPool, Stride, peer};

use crate::{
    group::room,
    objects::{PoolFixture, TimedObjects},
};

/// A pool that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolKind {
    /// [`bpfcost_pool::Freelist`].
    Freelist,
    /// [`bpfcost_pool::ArrayQueue`] with its slots side by side.
    Array,
    /// The same with a cache line for each slot.
    ArrayPadded,
    /// [`bpfcost_pool::PerCpuPool`].
    Percpu,
    /// [`peer::CrossbeamArray`].
    CrossbeamArray,
    /// [`peer::CrossbeamSeg`].
    CrossbeamSeg,
    /// [`peer::Concurrent`].
    Concurrent,
    /// [`peer::Mutexed`].
    Mutex,
}

use PoolKind::{
    Array, ArrayPadded, Concurrent, CrossbeamArray, CrossbeamSeg, Freelist as List, Mutex, Percpu,
};

/// Maximum bytes for an object in other people's queues. They abort the program when memory runs out, so the memory is
/// checked before.
const PEER_BYTES: usize = 64;

/// All of them, in the order of their declaration and of tables: names, and what they are.
const KINDS: [(PoolKind, &str, &str); 8] = [
    (List, "freelist", "one list, as in Linux until 6.6"),
    (
        Array,
        "array",
        "the array after study 001, slots side by side",
    ),
    (
        ArrayPadded,
        "array-padded",
        "the array after study 001, a slot on lines of its own",
    ),
    (
        Percpu,
        "percpu",
        "a ring for each CPU, as in Linux since 6.7",
    ),
    (
        CrossbeamArray,
        "crossbeam-array",
        "crossbeam's bounded queue",
    ),
    (CrossbeamSeg, "crossbeam-seg", "crossbeam's unbounded queue"),
    (Concurrent, "concurrent", "concurrent-queue, bounded"),
    (Mutex, "mutex", "a vector behind a lock"),
];

impl PoolKind {
    /// Kinds that are also measured away from the usual point: each of our own mechanisms, and the peer that they are
    /// compared with.
    pub const VARIED: [PoolKind; 4] = [List, Array, Percpu, CrossbeamArray];

    /// All of them, in the order of tables.
    pub fn all() -> impl Iterator<Item = PoolKind> {
        KINDS.into_iter().map(|kind| kind.0)
    }

    /// The name in cases and on the command line.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }

    /// Description of the kind, in a few words.
    pub fn about(self) -> &'static str {
        KINDS[self as usize].2
    }

    /// One with so many objects, for so many CPUs.
    pub fn fixture(self, objects: usize, cpus: usize) -> Result<Box<dyn TimedObjects>, Error> {
        if matches!(self, CrossbeamArray | CrossbeamSeg | Concurrent | Mutex) {
            let bytes = objects.saturating_mul(PEER_BYTES);
            if !room(bytes) {
                return Err(Error::NoMemory { objects, bytes });
            }
        }
        Ok(match self {
            List => PoolFixture::boxed(Freelist::new(objects)?, cpus)?,
            Array => {
                let pool = ArrayQueue::new(objects, cpus, Stride::Compact)?;
                PoolFixture::boxed(pool, cpus)?
            }
            ArrayPadded => {
                let pool = ArrayQueue::new(objects, cpus, Stride::Padded)?;
                PoolFixture::boxed(pool, cpus)?
            }
            Percpu => PoolFixture::boxed(PerCpuPool::new(objects, cpus)?, cpus)?,
            CrossbeamArray => PoolFixture::boxed(peer::CrossbeamArray::new(objects)?, cpus)?,
            CrossbeamSeg => PoolFixture::boxed(peer::CrossbeamSeg::new(objects)?, cpus)?,
            Concurrent => PoolFixture::boxed(peer::Concurrent::new(objects)?, cpus)?,
            Mutex => PoolFixture::boxed(peer::Mutexed::new(objects)?, cpus)?,
        })
    }
}
