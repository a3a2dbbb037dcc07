//! A ring for each CPU, as Linux has had since 6.7 (lib/objpool.c). An object is returned to the ring of the CPU on
//! which the caller runs, and looked for there first, then in the others'.
//!
//! The kernel claims a place and fills it then, with interrupts off, so that no thread has to wait between the
//! two. A thread can be preempted there, and would hide all that comes behind its place. So here the place
//! decides, and changes in one step: what is in it counts laps, which keeps those out who come too late, and
//! head and tail are no more than hints where to begin.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::{
    Error, Object, Pool,
    error::check,
    ledger::Ledger,
    lines::Lines,
    primitive::{Atomic, Native, Primitive},
};

/// Places on two cache lines.
const LINE: usize = 16;

/// One CPU's ring. Positions count up for ever, and are filled and emptied in this order.
#[derive(Debug)]
struct Ring<P: Primitive> {
    /// All positions before this one have been emptied.
    head: CachePadded<P::U64>,
    /// All positions before this one have been filled.
    tail: CachePadded<P::U64>,
    /// The places, each for every position that is equal modulo their number: the position that it is for next, or now,
    /// and the object there.
    places: Lines<P::U64, LINE>,
}

/// The kernel's object pool since Linux 6.7.
#[derive(Debug)]
pub struct PerCpuPool<P: Primitive = Native> {
    rings: Box<[Ring<P>]>,
    /// Places of a ring less one; they are a power of two, and have room for all objects.
    mask: u64,
    /// Bits of a place for an object's index + 1, or 0 where there is none; a position is above them.
    bits: u32,
    objects: usize,
    ledger: Ledger,
}

impl PerCpuPool {
    /// A pool of `objects` objects, spread over the rings of `cpus` CPUs.
    pub fn new(objects: usize, cpus: usize) -> Result<Self, Error> {
        Self::with_primitive(objects, cpus)
    }
}

impl<P: Primitive> PerCpuPool<P> {
    /// [`new`](Self::new) with the atomics of any [`Primitive`].
    pub fn with_primitive(objects: usize, cpus: usize) -> Result<Self, Error> {
        check(objects, cpus)?;
        let places = objects.next_power_of_two();
        let bits = usize::BITS - objects.leading_zeros();
        let bytes = cpus
            .saturating_mul(places)
            .saturating_mul(size_of::<P::U64>());
        let no_memory = Error::NoMemory { objects, bytes };
        let mut rings = alloc::vec::Vec::new();
        rings.try_reserve_exact(cpus).map_err(|_| no_memory)?;
        for _ in 0..cpus {
            let free = |place| P::U64::new((place as u64) << bits);
            rings.push(Ring {
                head: CachePadded::new(P::U64::new(0)),
                tail: CachePadded::new(P::U64::new(0)),
                places: Lines::new(objects, places, free).map_err(|_| no_memory)?,
            });
        }
        let pool = PerCpuPool {
            rings: rings.into_boxed_slice(),
            mask: places as u64 - 1,
            bits,
            objects,
            ledger: Ledger::new(objects)?,
        };
        for index in 0..objects {
            pool.put(index % cpus, index as u32);
        }
        Ok(pool)
    }

    #[inline]
    fn place<'a>(&self, ring: &'a Ring<P>, position: u64) -> &'a P::U64 {
        ring.places.at((position & self.mask) as usize)
    }

    /// The content of the free place of a position.
    #[inline]
    fn free(&self, position: u64) -> u64 {
        position << self.bits
    }

    /// The position in a place that is one for that position, or has been; or is going to be, where what was
    /// read of it is old: then it wraps, as all that counts positions does.
    #[inline]
    fn position(&self, held: u64, past: u64) -> u64 {
        let since = held.wrapping_sub(self.free(past));
        past.wrapping_add(since >> self.bits)
    }

    #[inline]
    fn put(&self, ring: usize, index: u32) {
        let ring = &self.rings[ring];
        let mut tail = ring.tail.load(Relaxed);
        loop {
            // It has been emptied in the lap before: else this ring held an object in each of its places, and
            // this one were one more than there are.
            let free = self.free(tail);
            let filled = free + u64::from(index) + 1;
            let place = self.place(ring, tail);
            match place.compare_exchange(free, filled, Release, Relaxed) {
                Ok(_) => break,
                Err(held) => {
                    let now = self.position(held, tail);
                    tail = if held == self.free(now) {
                        // Emptied by now, some laps on: what it was before was filled.
                        now.wrapping_sub(self.mask)
                    } else {
                        now.wrapping_add(1)
                    };
                }
            }
        }
        ring.tail.store(tail.wrapping_add(1), Relaxed);
    }

    #[inline]
    fn take(&self, ring: &Ring<P>) -> Option<u32> {
        let mut head = ring.head.load(Relaxed);
        loop {
            let place = self.place(ring, head);
            let held = place.load(Relaxed);
            let free = self.free(head);
            if held == free {
                return None;
            }
            let index = held.wrapping_sub(free).wrapping_sub(1);
            if index < self.objects as u64 {
                let next = self.free(head.wrapping_add(self.mask).wrapping_add(1));
                if place.compare_exchange(held, next, Acquire, Relaxed).is_ok() {
                    ring.head.store(head.wrapping_add(1), Relaxed);
                    return Some(index as u32);
                }
            } else {
                // A later lap's: what it was before was emptied.
                P::relax();
                head = self.position(held, head).wrapping_sub(self.mask);
            }
        }
    }

    #[inline]
    fn ring(&self, cpu: usize) -> usize {
        if cpu < self.rings.len() {
            cpu
        } else {
            cpu % self.rings.len()
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
        let ring = self.ring(cpu);
        let index = self.take(&self.rings[ring]).or_else(|| {
            let (before, from) = self.rings.split_at(ring);
            let others = from[1..].iter().chain(before);
            others.into_iter().find_map(|ring| self.take(ring))
        })?;
        self.ledger.out(index);
        Some(Object(index))
    }

    #[inline]
    fn push(&self, cpu: usize, Object(index): Object) {
        self.ledger.back(index);
        self.put(self.ring(cpu), index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_first_in_first_out_and_helps_others() -> Result<(), Error> {
        let pool = PerCpuPool::new(4, 2)?;
        let indices = [0, 0, 0, 0].map(|cpu| pool.pop(cpu).expect("four are in").index());
        assert_eq!(indices, [0, 2, 1, 3], "its own, then the other's");
        assert_eq!(pool.pop(1), None);
        for index in [3, 1] {
            pool.push(1, Object::at(index));
        }
        assert_eq!(pool.pop(0), Some(Object(3)));
        Ok(())
    }

    #[test]
    fn hints_may_lag_some_laps() -> Result<(), Error> {
        let pool = PerCpuPool::new(3, 1)?;
        let pair = |times: usize| {
            for _ in 0..times {
                let object = pool.pop(0).expect("three are in");
                pool.push(0, object);
            }
        };
        pair(30);
        let ring = &pool.rings[0];
        for late in 0..=30 {
            // As if a thread had slept before it published its position.
            ring.head.store(late, Relaxed);
            pair(1);
            ring.tail.store(late, Relaxed);
            pair(1);
        }
        ring.head.store(0, Relaxed);
        ring.tail.store(0, Relaxed);
        let mut indices = [0; 3].map(|cpu| pool.pop(cpu).expect("three are in").index());
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2]);
        assert_eq!(pool.pop(0), None);
        Ok(())
    }
}
