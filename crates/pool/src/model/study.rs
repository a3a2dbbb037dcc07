//! The array of study 001 as it was published, rebuilt for the model alone: what others measured was this one,
//! and [`ArrayQueue`](crate::ArrayQueue) has become another since.
//!
//! A slot holds an object or nothing. Both ways a thread begins at its CPU's slot, looks, and claims what it
//! sees by a compare-and-exchange; who brings an object back takes any slot that is free.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::{
    Error, Object, Pool,
    error::check,
    lines::Lines,
    primitive::{Atomic, Primitive},
};

/// The value of a slot without an object; others hold its index + 1.
const EMPTY: u32 = 0;

/// Slots side by side, one for each object.
#[derive(Debug)]
pub(super) struct StudyArray<P: Primitive> {
    slots: Lines<P::U32, 32>,
    objects: usize,
    cpus: usize,
}

impl<P: Primitive> StudyArray<P> {
    /// A pool of `objects` objects, all in it, for `cpus` CPUs.
    pub(super) fn with_primitive(objects: usize, cpus: usize) -> Result<Self, Error> {
        check(objects, cpus)?;
        Ok(StudyArray {
            slots: Lines::new(objects, objects, |at| P::U32::new(at as u32 + 1))?,
            objects,
            cpus: cpus.min(objects),
        })
    }

    /// Changes the first slot from the CPU's on that `wanted` likes to what it says. What was in it; `None`
    /// where there is none.
    fn claim(&self, cpu: usize, wanted: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let start = cpu % self.cpus * (self.objects / self.cpus);
        let mut all = (start..self.objects).chain(0..start);
        all.find_map(|at| {
            let slot = self.slots.at(at);
            let held = slot.load(Relaxed);
            let new = wanted(held)?;
            slot.compare_exchange(held, new, AcqRel, Relaxed).ok()
        })
    }
}

impl<P: Primitive> Pool for StudyArray<P>
where
    Self: Send + Sync,
{
    fn capacity(&self) -> usize {
        self.objects
    }

    fn pop(&self, cpu: usize) -> Option<Object> {
        let held = self.claim(cpu, |held| (held != EMPTY).then_some(EMPTY))?;
        Some(Object(held - 1))
    }

    fn push(&self, cpu: usize, Object(index): Object) {
        let free = |held| (held == EMPTY).then_some(index + 1);
        // There is a slot for each object: where none was free, another thread has been faster.
        while self.claim(cpu, free).is_none() {
            P::relax();
        }
    }
}
