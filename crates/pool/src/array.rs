//! The bounded array of study 001: a slot holds an object or nothing, and both ways it changes by one
//! compare-and-exchange. Nothing links to anything, so there is no ABA.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::{
    Error, Object, Pool,
    error::{boxed, check},
    ledger::Ledger,
    primitive::{Atomic, Native, Primitive},
};

/// What a slot holds that has no object; others hold its index + 1.
const EMPTY: u32 = 0;

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
            Stride::Padded => 5,
        }
    }
}

/// The study's pool: each CPU begins to look at a slot of its own, for objects as for room.
#[derive(Debug)]
pub struct ArrayQueue<P: Primitive = Native> {
    slots: Box<[P::U32]>,
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
        let slots = boxed(objects, count << shift, || P::U32::new(EMPTY))?;
        let cpus = cpus.next_power_of_two();
        for index in 0..objects {
            // Spread, so that each CPU finds one where it begins.
            let slot = index * count / objects;
            slots[slot << shift].store(index as u32 + 1, Relaxed);
        }
        Ok(ArrayQueue {
            slots,
            mask: count - 1,
            shift,
            cpus: cpus - 1,
            apart: (count / cpus).max(1),
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
        &self.slots[(at & self.mask) << self.shift]
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
        let start = self.start(cpu);
        for at in start..=start + self.mask {
            let slot = self.slot(at);
            let held = slot.load(Relaxed);
            if held != EMPTY && slot.compare_exchange(held, EMPTY, Acquire, Relaxed).is_ok() {
                self.ledger.out(held - 1);
                return Some(Object(held - 1));
            }
        }
        None
    }

    #[inline]
    fn push(&self, cpu: usize, Object(index): Object) {
        self.ledger.back(index);
        // There is a slot for each object, so that a free one is met sooner or later: each time that one is
        // missed, another thread has put something there.
        let mut at = self.start(cpu);
        loop {
            let slot = self.slot(at);
            if slot.load(Relaxed) == EMPTY
                && slot
                    .compare_exchange(EMPTY, index + 1, Release, Relaxed)
                    .is_ok()
            {
                return;
            }
            at += 1;
        }
    }
}
