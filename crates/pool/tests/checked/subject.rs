//! The pools that are checked, made of a checker's atomics, and one that is known to be wrong.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use bpfcost_pool::{ArrayQueue, Freelist, Object, PerCpuPool, Pool, Stride, primitive::Atomic};

use crate::world::World;

/// A pool that can be made in any world.
pub(crate) trait Subject: 'static {
    type Pool<W: World>: Pool + 'static;
    fn build<W: World>(objects: usize, cpus: usize) -> Self::Pool<W>;
}

pub(crate) struct TheFreelist;
pub(crate) struct TheArray;
pub(crate) struct TheRings;
/// A list without the counts that keep ABA away.
pub(crate) struct Uncounted;

impl Subject for TheFreelist {
    type Pool<W: World> = Freelist<W>;
    fn build<W: World>(objects: usize, _cpus: usize) -> Freelist<W> {
        Freelist::with_primitive(objects).expect("it is small")
    }
}

impl Subject for TheArray {
    type Pool<W: World> = ArrayQueue<W>;
    // The stride changes where slots lie, not what is done with them.
    fn build<W: World>(objects: usize, cpus: usize) -> ArrayQueue<W> {
        ArrayQueue::with_primitive(objects, cpus, Stride::Compact).expect("it is small")
    }
}

impl Subject for TheRings {
    type Pool<W: World> = PerCpuPool<W>;
    fn build<W: World>(objects: usize, cpus: usize) -> PerCpuPool<W> {
        PerCpuPool::with_primitive(objects, cpus).expect("it is small")
    }
}

impl Subject for Uncounted {
    type Pool<W: World> = Stack<W>;
    fn build<W: World>(objects: usize, _cpus: usize) -> Stack<W> {
        Stack::new(objects)
    }
}

/// Treiber's stack of 1986 with nodes that come back: while one is about to take the top off, others take it
/// and the next one, and bring back the first. The top is the same, and its next is out.
#[derive(Debug)]
pub(crate) struct Stack<W: World> {
    head: W::U32,
    next: Box<[W::U32]>,
}

impl<W: World> Stack<W> {
    fn new(objects: usize) -> Self {
        Stack {
            head: W::U32::new(objects as u32),
            next: (0..objects as u32).map(W::U32::new).collect(),
        }
    }
}

impl<W: World> Pool for Stack<W> {
    fn capacity(&self) -> usize {
        self.next.len()
    }

    fn pop(&self, _cpu: usize) -> Option<Object> {
        let mut head = self.head.load(Acquire);
        while head != 0 {
            let next = self.next[head as usize - 1].load(Relaxed);
            match self.head.compare_exchange(head, next, Acquire, Acquire) {
                Ok(_) => return Some(Object::at(head as usize - 1)),
                Err(now) => head = now,
            }
        }
        None
    }

    fn push(&self, _cpu: usize, object: Object) {
        let mut head = self.head.load(Relaxed);
        loop {
            self.next[object.index()].store(head, Relaxed);
            match self
                .head
                .compare_exchange(head, object.index() as u32 + 1, Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}
