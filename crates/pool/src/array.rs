//! The bounded array of study 001: each CPU starts at its own slot, claims what is there by
//! compare-and-exchange, and otherwise goes on to the next. Nothing is linked to anything, so there is no ABA.
//!
//! The study lets a returned object go to any slot, and claims that by a second compare-and-exchange. But its
//! own slot is still there, and no other object's: an object that is out keeps it, and comes back by a plain store.
//! That halves the cost of a pair without contention, can't fail, and brings what one CPU took from another's
//! part of the array back there. Who finds a slot empty changes nothing, so only an object's owners write to it.
//!
//! A thread goes for its first slot at once, without a look at it before: a look fetches the cache line to
//! read, and then the exchange fetches it a second time, to write.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{
    Error, Object, Pool,
    error::check,
    ledger::Ledger,
    lines::Lines,
    primitive::{Atomic, Native, Primitive},
};

/// The value of a slot whose object is out, and of one whose object is in the pool.
const OUT: u32 = 0;
const IN: u32 = 1;

/// Slots on two cache lines.
const LINE: usize = 32;

/// The distance between slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Side by side, 16 on a cache line: little memory, and CPUs share lines.
    Compact,
    /// Two cache lines apart, for CPUs fetch them in pairs: no two slots share one.
    Padded,
}

impl Stride {
    /// The distance in slots, as a power of two.
    fn shift(self) -> u32 {
        match self {
            Stride::Compact => 0,
            Stride::Padded => LINE.ilog2(),
        }
    }
}

/// The study's pool: an array of slots, of which each CPU has a part where it begins to look.
#[derive(Debug)]
pub struct ArrayQueue<P: Primitive = Native> {
    slots: Lines<P::U32, LINE>,
    objects: usize,
    /// The distance between slots, as a power of two.
    shift: u32,
    /// CPUs that begin at slots of their own; objects between two of those.
    cpus: usize,
    apart: usize,
    ledger: Ledger,
}

impl ArrayQueue {
    /// A pool of `objects` objects, all in it, for `cpus` CPUs.
    pub fn new(objects: usize, cpus: usize, stride: Stride) -> Result<Self, Error> {
        Self::with_primitive(objects, cpus, stride)
    }
}

impl<P: Primitive> ArrayQueue<P> {
    /// [`new`](Self::new) with the atomics of any [`Primitive`].
    pub fn with_primitive(objects: usize, cpus: usize, stride: Stride) -> Result<Self, Error> {
        check(objects, cpus)?;
        let shift = stride.shift();
        let length = objects.saturating_mul(1 << shift);
        let cpus = cpus.min(objects);
        Ok(ArrayQueue {
            slots: Lines::new(objects, length, |_| P::U32::new(IN))?,
            objects,
            shift,
            cpus,
            apart: objects / cpus,
            ledger: Ledger::new(objects)?,
        })
    }

    /// The slot at which a CPU begins to search.
    #[inline]
    fn start(&self, cpu: usize) -> usize {
        if cpu < self.cpus {
            cpu * self.apart
        } else {
            cpu % self.cpus * self.apart
        }
    }

    #[inline]
    fn slot(&self, object: usize) -> &P::U32 {
        self.slots.at(object << self.shift)
    }

    /// Takes an object from any slot but the first.
    #[inline(never)]
    fn search(&self, start: usize) -> Option<usize> {
        let others = (start + 1..self.objects).chain(0..start);
        let mut free = others.filter(|&at| {
            let slot = self.slot(at);
            slot.load(Relaxed) == IN && claim::<P>(slot)
        });
        free.next()
    }
}

/// Takes the object of a slot, if it is there. Known by its callers, so that tests can spoil one without the other.
#[inline]
#[track_caller]
fn claim<P: Primitive>(slot: &P::U32) -> bool {
    slot.compare_exchange(IN, OUT, Acquire, Relaxed).is_ok()
}

impl<P: Primitive> Pool for ArrayQueue<P>
where
    Self: Send + Sync,
{
    fn capacity(&self) -> usize {
        self.objects
    }

    #[inline]
    fn pop(&self, cpu: usize) -> Option<Object> {
        let start = self.start(cpu);
        let at = if claim::<P>(self.slot(start)) {
            start
        } else {
            self.search(start)?
        };
        self.ledger.out(at as u32);
        Some(Object(at as u32))
    }

    #[inline]
    fn push(&self, _cpu: usize, object: Object) {
        self.ledger.back(object.0);
        self.slot(object.index()).store(IN, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_begins_with_an_object_of_its_own() -> Result<(), Error> {
        for stride in [Stride::Compact, Stride::Padded] {
            let pool = ArrayQueue::new(6, 3, stride)?;
            let first = [0, 1, 2].map(|cpu| pool.pop(cpu).expect("six are in").index());
            assert_eq!(first, [0, 2, 4]);
            let few = ArrayQueue::new(2, 3, stride)?;
            let all = [2, 1, 0].map(|cpu| few.pop(cpu).map(|object| object.index()));
            assert_eq!(all, [Some(0), Some(1), None]);
        }
        Ok(())
    }

    #[test]
    fn who_finds_its_slot_empty_takes_from_others() -> Result<(), Error> {
        let pool = ArrayQueue::new(3, 3, Stride::Compact)?;
        let indices = [1, 1, 1].map(|cpu| pool.pop(cpu).expect("three are in").index());
        assert_eq!(indices, [1, 2, 0]);
        assert_eq!(pool.pop(1), None);
        for index in indices {
            pool.push(2, Object::at(index));
        }
        assert_eq!(
            pool.pop(0).map(|object| object.index()),
            Some(0),
            "back in its slot"
        );
        Ok(())
    }
}
