//! The bounded array of study 001: a slot holds an object or nothing, and both ways it changes in one atomic
//! step. Nothing links to anything, so there is no ABA.
//!
//! The study claims a slot by compare-and-exchange, both ways. Here that is a swap, with nothing to take what
//! is there, and with an object to bring one back. It leaves the same slots full: who swaps with an empty one
//! has taken nothing and changed nothing; who swaps into a full one has an object in hand as before, another
//! one, and takes it further. But a swap can't fail because one object went and another came, and need not
//! wait for what the slot was seen to hold.
//!
//! A thread goes for its first slot at once, without a look at it before: a look fetches the cache line to
//! read, and then the atomic step fetches it a second time, to write.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::{
    Error, Object, Pool,
    error::check,
    ledger::Ledger,
    lines::Lines,
    primitive::{Atomic, Native, Primitive},
};

/// What a slot holds that has no object; others hold its index + 1.
const EMPTY: u32 = 0;

/// Slots on two cache lines.
const LINE: usize = 32;

/// How far slots are apart.
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

/// The study's pool: each CPU begins to look at a slot of its own, for objects as for room.
#[derive(Debug)]
pub struct ArrayQueue<P: Primitive = Native> {
    slots: Lines<P::U32, LINE>,
    /// Slots less one; they are a power of two.
    mask: usize,
    shift: u32,
    /// CPUs less one, where their number is rounded up to a power of two.
    cpus: usize,
    /// Slots between the starts of two CPUs.
    apart: usize,
    objects: usize,
    ledger: Ledger,
}

impl ArrayQueue {
    /// A pool with so many objects, all in it, for so many CPUs.
    pub fn new(objects: usize, cpus: usize, stride: Stride) -> Result<Self, Error> {
        Self::of(objects, cpus, stride)
    }
}

impl<P: Primitive> ArrayQueue<P> {
    /// [`new`](Self::new), made of the atomics of that [`Primitive`].
    pub fn of(objects: usize, cpus: usize, stride: Stride) -> Result<Self, Error> {
        check(objects, cpus)?;
        let count = objects.next_power_of_two();
        let shift = stride.shift();
        let length = count.saturating_mul(1 << shift);
        let slots = Lines::new(objects, length, |_| P::U32::new(EMPTY))?;
        // More than there are slots would begin at the same ones.
        let cpus = cpus.min(count).next_power_of_two();
        for index in 0..objects {
            // Spread, so that each CPU finds one where it begins.
            let slot = index * count / objects;
            slots.at(slot << shift).store(index as u32 + 1, Relaxed);
        }
        Ok(ArrayQueue {
            slots,
            mask: count - 1,
            shift,
            cpus: cpus - 1,
            apart: count / cpus,
            objects,
            ledger: Ledger::new(objects)?,
        })
    }

    /// Where a CPU begins to look.
    #[inline]
    fn start(&self, cpu: usize) -> usize {
        (cpu & self.cpus) * self.apart
    }

    #[inline]
    fn slot(&self, at: usize) -> &P::U32 {
        self.slots.at((at & self.mask) << self.shift)
    }

    /// Exchanges what a slot holds.
    #[inline]
    fn exchange(&self, at: usize, new: u32) -> u32 {
        self.slot(at).swap(new, AcqRel)
    }
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
        let mut at = self.start(cpu);
        let last = at + self.mask;
        let mut held = self.exchange(at, EMPTY);
        while held == EMPTY {
            if at == last {
                return None;
            }
            at += 1;
            if self.slot(at).load(Relaxed) != EMPTY {
                held = self.exchange(at, EMPTY);
            }
        }
        self.ledger.out(held - 1);
        Some(Object(held - 1))
    }

    #[inline]
    fn push(&self, cpu: usize, Object(index): Object) {
        self.ledger.back(index);
        let start = self.start(cpu);
        let mut at = start;
        let mut held = self.exchange(at, index + 1);
        // There is a slot for each object, so that a free one is met sooner or later: each time that one is
        // missed, another thread has put something there.
        while held != EMPTY {
            at += 1;
            if (at - start) & self.mask == 0 {
                P::relax();
            }
            if self.slot(at).load(Relaxed) == EMPTY {
                held = self.exchange(at, held);
            }
        }
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
            assert_eq!(first, [0, 2, 3]);
        }
        Ok(())
    }

    #[test]
    fn a_full_slot_is_passed_with_what_was_in_it() -> Result<(), Error> {
        let pool = ArrayQueue::new(2, 2, Stride::Compact)?;
        let (zero, one) = (pool.pop(0).expect("full"), pool.pop(1).expect("one left"));
        pool.push(0, one);
        pool.push(0, zero);
        assert_eq!(pool.pop(0).expect("both are in"), Object(0));
        assert_eq!(pool.pop(0).expect("one left"), Object(1));
        assert_eq!(pool.pop(0), None);
        Ok(())
    }
}
