//! What Linux has had since 6.7 (lib/objpool.c): a ring for each CPU. An object is returned to the ring of
//! the CPU it is returned on, and looked for there first, then in the others'.
//!
//! The kernel keeps interrupts off while it returns one, so that nobody sees a ring between the claim of a
//! place and the object in it. A thread can be preempted there: so each place carries the position that it was
//! filled for, and one that is claimed and not filled yet reads as empty.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::{
    Error, Object, Pool,
    error::{boxed, check},
    ledger::Ledger,
    primitive::{Atomic, Native, Primitive},
};

/// One CPU's ring. Positions count up for ever; a place is a position's low bits.
#[derive(Debug)]
struct Ring<P: Primitive> {
    /// The position to pop from.
    head: CachePadded<P::U64>,
    /// The position to push to.
    tail: CachePadded<P::U64>,
    /// In the low half an object's index; in the high half the low bits of the position + 1.
    places: Box<[P::U64]>,
}

/// The kernel's object pool since Linux 6.7.
#[derive(Debug)]
pub struct PerCpuPool<P: Primitive = Native> {
    rings: Box<[CachePadded<Ring<P>>]>,
    /// Places of a ring less one; each ring has room for all objects.
    mask: u64,
    objects: usize,
    ledger: Ledger,
}

/// What is in the place of an object at a position.
#[inline]
fn filled(position: u64, index: u32) -> u64 {
    (position.wrapping_add(1) << 32) | u64::from(index)
}

impl PerCpuPool {
    /// A pool with so many objects, spread over the rings of so many CPUs.
    pub fn new(objects: usize, cpus: usize) -> Result<Self, Error> {
        Self::of(objects, cpus)
    }
}

impl<P: Primitive> PerCpuPool<P> {
    /// [`new`](Self::new), made of the atomics of that [`Primitive`].
    pub fn of(objects: usize, cpus: usize) -> Result<Self, Error> {
        check(objects, cpus)?;
        let places = objects.next_power_of_two();
        let mut rings = alloc::vec::Vec::new();
        let bytes = cpus
            .saturating_mul(places)
            .saturating_mul(size_of::<P::U64>());
        let no_memory = Error::NoMemory { objects, bytes };
        rings.try_reserve_exact(cpus).map_err(|_| no_memory)?;
        for _ in 0..cpus {
            rings.push(CachePadded::new(Ring {
                head: CachePadded::new(P::U64::new(0)),
                tail: CachePadded::new(P::U64::new(0)),
                places: boxed(objects, places, || P::U64::new(0)).map_err(|_| no_memory)?,
            }));
        }
        let pool = PerCpuPool {
            rings: rings.into_boxed_slice(),
            mask: places as u64 - 1,
            objects,
            ledger: Ledger::new(objects)?,
        };
        for index in 0..objects {
            pool.put(index % cpus, index as u32);
        }
        Ok(pool)
    }

    #[inline]
    fn put(&self, ring: usize, index: u32) {
        let ring = &self.rings[ring];
        // Nobody else has this position, and its place is free: objects are no more than places.
        let position = ring.tail.fetch_add(1, Relaxed);
        let place = &ring.places[(position & self.mask) as usize];
        place.store(filled(position, index), Release);
    }

    #[inline]
    fn take(&self, ring: &Ring<P>) -> Option<u32> {
        let mut head = ring.head.load(Relaxed);
        loop {
            let held = ring.places[(head & self.mask) as usize].load(Acquire);
            if held == filled(head, held as u32) {
                match ring
                    .head
                    .compare_exchange(head, head.wrapping_add(1), Relaxed, Relaxed)
                {
                    Ok(_) => return Some(held as u32),
                    Err(now) => head = now,
                }
            } else {
                // Empty, unless the head has moved on meanwhile.
                let now = ring.head.load(Relaxed);
                if now == head {
                    return None;
                }
                head = now;
            }
        }
    }

    #[inline]
    fn ring(&self, cpu: usize) -> usize {
        match cpu < self.rings.len() {
            true => cpu,
            false => cpu % self.rings.len(),
        }
    }
}

impl<P: Primitive> Pool for PerCpuPool<P>
where
    Self: Send + Sync,
{
    fn capacity(&self) -> usize {
        self.objects
    }

    #[inline]
    fn pop(&self, cpu: usize) -> Option<Object> {
        let start = self.ring(cpu);
        let (before, from) = self.rings.split_at(start);
        for ring in from.iter().chain(before) {
            if let Some(index) = self.take(ring) {
                self.ledger.out(index);
                return Some(Object(index));
            }
        }
        None
    }

    #[inline]
    fn push(&self, cpu: usize, Object(index): Object) {
        self.ledger.back(index);
        self.put(self.ring(cpu), index);
    }
}
