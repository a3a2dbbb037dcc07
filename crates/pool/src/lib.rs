//! Pools of pre-allocated objects without locks: what a kernel takes the records of function returns from,
//! in each of the ways that Linux and its developers have done it, and what they are compared with.
//!
//! A pool is made with a number of objects, hands them out and takes them back. Order and fairness don't
//! matter; an object is in one place at a time, and none is lost. [`Objects`] are values with a pool over them,
//! [`PerCpuPool`], [`ArrayQueue`] and [`Freelist`] the pools. The README says which to take, and what they cost.

#![no_std]

/// The examples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod array;
#[cfg(feature = "std")]
pub mod cpu;
mod error;
mod freelist;
mod ledger;
mod lines;
#[cfg(feature = "model")]
pub mod model;
mod objects;
#[cfg(feature = "peers")]
pub mod peer;
mod percpu;
pub mod primitive;

pub use array::{ArrayQueue, Stride};
pub use error::Error;
pub use freelist::Freelist;
pub use objects::{ObjectGuard, Objects};
pub use percpu::PerCpuPool;

/// An object of a pool, while it is out: who has it owns it. Dropped instead of returned, it is lost to
/// its pool.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an object that is not pushed back is lost to its pool"]
pub struct Object(u32);

impl Object {
    /// The object's index in its pool, from 0 to the capacity.
    pub fn index(&self) -> usize {
        self.0 as usize
    }

    /// The object of that index, for callers that keep indices where the compiler can't follow them. The object must be
    /// out, and only once: returned twice, it has two owners next. Debug builds panic at that.
    pub fn at(index: usize) -> Self {
        Object(u32::try_from(index).expect("pools have fewer than 2^32 objects"))
    }
}

/// Hands out objects and takes them back, to and from any number of threads.
///
/// `cpu` is the caller's CPU, as far as it knows. It decides where the pool looks first and never changes what is
/// correct: any number will do.
///
/// ```
/// use bpfcost_pool::{Freelist, PerCpuPool, Pool};
///
/// fn all(pool: &impl Pool) -> Vec<usize> {
///     let objects: Vec<_> = std::iter::from_fn(|| pool.pop(0)).collect();
///     let indices = objects.iter().map(|object| object.index()).collect();
///     objects.into_iter().for_each(|object| pool.push(0, object));
///     indices
/// }
///
/// assert_eq!(all(&Freelist::new(3)?), [2, 1, 0]);
/// assert_eq!(all(&PerCpuPool::new(4, 2)?), [0, 2, 1, 3]);
/// # Ok::<(), bpfcost_pool::Error>(())
/// ```
pub trait Pool: Send + Sync {
    /// The number of objects, in and out.
    fn capacity(&self) -> usize;

    /// Takes an object out. `None`, at once, where none is found: objects on their way back while this looks
    /// may be missed.
    fn pop(&self, cpu: usize) -> Option<Object>;

    /// Brings an object back that was popped from this pool.
    fn push(&self, cpu: usize, object: Object);
}
