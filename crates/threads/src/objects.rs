//! A pool with its objects, and the timed loop.
//!
//! A thread that takes an object counts the use and signs it, and checks the signature when it returns the object.
//! Both are a read and a write, not an atomic change: if two threads have an object at once, uses are lost or
//! signatures differ, and the [proof](TrialCounts::problem) fails.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

use bpfcost_pool::{Error, Object, Pool};
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

use crate::{
    counts::{PoolContents, ThreadCount, TrialCounts},
    group::{Member, ThreadGroup, WAIT_TIMEOUT},
};
use bpfcost_model::Fault;

/// Divisor for the part of a batch's pairs that is repeated with a reading of the clock around each pair.
const LATENCY_SHARE: u64 = 16;

/// Significant digits of latencies: 1 % is finer than they repeat.
const DIGITS: u8 = 2;
/// The longest latency that is recorded, in nanoseconds: no thread waits longer for an object.
const LONGEST_NS: u64 = WAIT_TIMEOUT.as_nanos() as u64;

/// Looks in vain between two at how long this lasts.
const LOOKS_A_CLOCK: u64 = 1024;

/// Pattern in which a thread takes and returns objects.
#[derive(Clone, Copy, Debug)]
pub struct UsePattern {
    /// Pairs of pop and push.
    pub pairs: u64,
    /// Multiplications while an object is held.
    pub hold: u32,
    /// Objects that are taken before they are returned.
    pub bulk: usize,
}

/// Source of the objects that threads take: a pool, or none.
pub trait TimedObjects {
    /// Times all threads of a group; what was seen, latencies included.
    fn time(&self, group: ThreadGroup, each: UsePattern) -> Result<TrialCounts, Fault>;
}

/// An object's own memory.
#[derive(Debug, Default)]
struct Stamp {
    uses: AtomicU64,
    /// The thread that had it last.
    owner: AtomicU32,
}

impl Stamp {
    /// Counts a use by this thread. A plain read and a plain write: with two owners at once, one is lost.
    #[inline]
    fn sign(&self, thread: u32) {
        self.uses.store(self.uses.load(Relaxed) + 1, Relaxed);
        self.owner.store(thread, Relaxed);
    }

    #[inline]
    fn is_signed(&self, thread: u32) -> bool {
        self.owner.load(Relaxed) == thread
    }
}

/// So many multiplications: each squares what the one before made, and no compiler knows a shorter way there.
#[inline]
fn wait_for(multiplications: u32) {
    if multiplications > 0 {
        let mut product = black_box(3u64);
        for _ in 0..multiplications {
            product = product.wrapping_mul(product);
        }
        black_box(product);
    }
}

/// A pool with its objects.
#[derive(Debug)]
pub(crate) struct PoolFixture<P> {
    pool: P,
    cpus: usize,
    stamps: Box<[CachePadded<Stamp>]>,
}

impl<P: Pool + 'static> PoolFixture<P> {
    /// A pool as it was made, for so many CPUs.
    pub(crate) fn new(pool: P, cpus: usize) -> Result<Self, Error> {
        let objects = pool.capacity();
        let mut stamps = Vec::new();
        stamps
            .try_reserve_exact(objects)
            .map_err(|_| Error::NoMemory {
                objects,
                bytes: objects * size_of::<CachePadded<Stamp>>(),
            })?;
        stamps.resize_with(objects, CachePadded::default);
        Ok(PoolFixture {
            pool,
            cpus,
            stamps: stamps.into(),
        })
    }

    /// The same as a fixture of any kind.
    pub(crate) fn boxed(pool: P, cpus: usize) -> Result<Box<dyn TimedObjects>, Error> {
        Ok(Box::new(PoolFixture::new(pool, cpus)?))
    }

    /// All of one thread.
    fn work(&self, at: usize, member: &Member, each: UsePattern) -> ThreadCount {
        let UsePattern { pairs, hold, bulk } = each;
        let mut held = Vec::with_capacity(bulk);
        let mut hand = ThreadPart {
            fixture: self,
            member,
            at,
            sign: member.index as u32 + 1,
            hold,
            count: ThreadCount {
                pairs: 0,
                single: 0,
                misses: 0,
                foreign: 0,
                timed: None,
                latency: Histogram::new_with_max(LONGEST_NS, DIGITS)
                    .expect("it is more than 2 ns, with no more than 5 digits"),
            },
        };
        let Some(begun) = member.meet(0) else {
            return hand.count;
        };
        hand.count.pairs = match bulk {
            1 => hand.singly(pairs),
            bulk => hand.in_bulk(pairs, bulk, &mut held),
        };
        hand.count.timed = Some((begun, Instant::now()));
        let misses = hand.count.misses;
        // Objects taken in bulk have no start and end of their own.
        if bulk == 1 && member.meet(1).is_some() {
            hand.clocked(pairs.div_ceil(LATENCY_SHARE));
        }
        hand.count.misses = misses;
        hand.count
    }

    /// All threads; `at` returns where each asks for objects.
    fn all(
        &self,
        group: ThreadGroup,
        each: UsePattern,
        at: fn(&Member) -> usize,
    ) -> Result<TrialCounts, Fault> {
        for stamp in &self.stamps {
            stamp.uses.store(0, Relaxed);
        }
        let counts = group.work(|member| self.work(at(member), member, each))?;
        let uses = self.stamps.iter().map(|stamp| stamp.uses.load(Relaxed));
        Ok(TrialCounts {
            uses: uses.sum(),
            objects: self.stamps.len(),
            drained: None,
            counts,
        })
    }

    /// Takes all objects out and puts them back as they lay at first.
    fn drain(&self) -> PoolContents {
        let mut out: Vec<Option<Object>> = Vec::new();
        out.resize_with(self.stamps.len(), || None);
        let mut drained = PoolContents::default();
        // One more than there can be, to see whether there is.
        for _ in 0..=out.len() {
            let Some(object) = self.pool.pop(0) else {
                break;
            };
            match out.get_mut(object.index()) {
                Some(place @ None) => *place = Some(object),
                Some(Some(_)) => drained.again += 1,
                None => drained.strange += 1,
            }
        }
        let objects = out.len();
        for (index, object) in out.into_iter().enumerate() {
            if let Some(object) = object {
                drained.once += 1;
                self.pool.push(index * self.cpus / objects, object);
            }
        }
        drained
    }
}

impl<P: Pool + 'static> TimedObjects for PoolFixture<P> {
    fn time(&self, group: ThreadGroup, each: UsePattern) -> Result<TrialCounts, Fault> {
        let seen = self.all(group, each, |member| member.place)?;
        Ok(TrialCounts {
            drained: Some(self.drain()),
            ..seen
        })
    }
}

struct ThreadPart<'a, P> {
    fixture: &'a PoolFixture<P>,
    member: &'a Member<'a>,
    at: usize,
    sign: u32,
    hold: u32,
    count: ThreadCount,
}

impl<P: Pool + 'static> ThreadPart<'_, P> {
    /// Pairs one after the other: how many, which are fewer where no object came for too long.
    fn singly(&mut self, pairs: u64) -> u64 {
        let fixture = self.fixture;
        let (at, sign, hold) = (self.at, self.sign, self.hold);
        let one = UsePattern {
            pairs,
            hold,
            bulk: 1,
        };
        let (done, foreign) = singly(&fixture.pool, &fixture.stamps, at, sign, one, &mut || {
            self.wait()
        });
        self.count.foreign += foreign;
        done
    }

    fn in_bulk(&mut self, pairs: u64, bulk: usize, held: &mut Vec<Object>) -> u64 {
        let mut done = 0;
        while done < pairs {
            let wanted = bulk.min(usize::try_from(pairs - done).unwrap_or(bulk));
            while held.len() < wanted {
                match self.fixture.pool.pop(self.at) {
                    Some(object) => held.push(object),
                    // Who waited with objects in hand could wait for one who does the same.
                    None if !held.is_empty() => {
                        self.count.misses += 1;
                        break;
                    }
                    None => match self.wait() {
                        Some(object) => held.push(object),
                        None => return done,
                    },
                }
            }
            held.iter().for_each(|object| self.take(object));
            wait_for(self.hold);
            done += held.len() as u64;
            held.drain(..).for_each(|object| self.give(object));
        }
        done
    }

    /// Pairs with a look at the clock before and after.
    fn clocked(&mut self, pairs: u64) {
        for _ in 0..pairs {
            let begun = Instant::now();
            if self.singly(1) == 0 {
                return;
            }
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.count.latency.saturating_record(ns);
            self.count.single += 1;
        }
    }

    fn take(&self, object: &Object) {
        let stamp = self.fixture.stamps.get(object.index());
        stamp.inspect(|stamp| stamp.sign(self.sign));
    }

    fn give(&mut self, object: Object) {
        let stamp = self.fixture.stamps.get(object.index());
        self.count.foreign += u64::from(stamp.is_none_or(|stamp| !stamp.is_signed(self.sign)));
        self.fixture.pool.push(self.at, object);
    }

    /// Looks for an object again and again, others first; `None` where that lasts too long.
    #[cold]
    fn wait(&mut self) -> Option<Object> {
        let wait = self.member.wait();
        self.count.misses += 1;
        for looks in 1u64.. {
            if looks % LOOKS_A_CLOCK == 0 && wait.is_over() {
                break;
            }
            thread::yield_now();
            if let Some(object) = self.fixture.pool.pop(self.at) {
                return Some(object);
            }
        }
        None
    }
}

/// The timed loop. Returns the pairs done, and the objects that another thread had signed meanwhile.
///
/// A separate function, so that the compiler knows that its references do not change, and reads them once. An
/// atomic change holds up all later reads: reading a pool's fields again and again would cost each pool some
/// nanoseconds, and not each pool the same.
#[inline(never)]
fn singly<P: Pool>(
    pool: &P,
    stamps: &[CachePadded<Stamp>],
    at: usize,
    sign: u32,
    each: UsePattern,
    wait: &mut dyn FnMut() -> Option<Object>,
) -> (u64, u64) {
    let (mut done, mut foreign) = (0, 0);
    while done < each.pairs {
        let Some(object) = pool.pop(at).or_else(&mut *wait) else {
            break;
        };
        let stamp = stamps.get(object.index());
        stamp.inspect(|stamp| stamp.sign(sign));
        wait_for(each.hold);
        foreign += u64::from(stamp.is_none_or(|stamp| !stamp.is_signed(sign)));
        pool.push(at, object);
        done += 1;
    }
    (done, foreign)
}

/// No pool: each thread has its own object, which is always free.
#[derive(Debug)]
struct PrivateObjects(usize);

impl Pool for PrivateObjects {
    fn capacity(&self) -> usize {
        self.0
    }

    #[inline]
    fn pop(&self, thread: usize) -> Option<Object> {
        Some(Object::at(thread))
    }

    #[inline]
    fn push(&self, _thread: usize, _object: Object) {}
}

/// The same loop with objects and without a pool.
#[derive(Debug)]
pub struct Floor(PoolFixture<PrivateObjects>);

impl Floor {
    /// For so many threads.
    pub fn boxed(threads: usize) -> Result<Box<dyn TimedObjects>, Error> {
        Ok(Box::new(Floor(PoolFixture::new(
            PrivateObjects(threads),
            1,
        )?)))
    }
}

impl TimedObjects for Floor {
    fn time(&self, group: ThreadGroup, each: UsePattern) -> Result<TrialCounts, Fault> {
        self.0.all(group, each, |member| member.index)
    }
}

#[cfg(test)]
mod tests;
