//! The kernel's list of kretprobe records until Linux 6.6: last in, first out, and safe from ABA by a count
//! of references on each node, with a flag that says it should be on the list. Due to Cameron Desrochers
//! (2014); in Linux by 6e426e0fcd20 (2020), removed by 4bbd93455659 (2023).
//!
//! Each ordering is the kernel's (include/linux/freelist.h until 6.6), where an atomic that names none is fully
//! ordered: here it acquires and releases. A thread that takes a node has a reference to it first, so that the
//! references carry the order between threads. A model checker asks for less at the head, in small cases; what
//! it does not ask for stays all the same, and is listed in `tests/checked/kept.rs`.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crossbeam_utils::CachePadded;

use crate::{
    Error, Object, Pool,
    error::{boxed, check},
    ledger::Ledger,
    primitive::{Atomic, Native, Primitive},
};

/// No node; others are their index + 1.
const NONE: u32 = 0;
/// The bit of a node's count that says that it should be on the list: the last one to drop a reference puts it there.
const SHOULD_BE_ON: u32 = 1 << 31;
/// The bits of a node's count that are references.
const REFERENCES: u32 = SHOULD_BE_ON - 1;

/// A node; in the kernel it is a part of the object, which has its own cache lines.
#[derive(Debug)]
struct Node<P: Primitive> {
    references: P::U32,
    next: P::U32,
}

/// The kernel's pool of kretprobe records until Linux 6.6: one list, whose head all CPUs fight for.
#[derive(Debug)]
pub struct Freelist<P: Primitive = Native> {
    head: CachePadded<P::U32>,
    nodes: Box<[CachePadded<Node<P>>]>,
    ledger: Ledger,
}

impl Freelist {
    /// A pool of `objects` objects, all in it.
    pub fn new(objects: usize) -> Result<Self, Error> {
        Self::with_primitive(objects)
    }
}

impl<P: Primitive> Freelist<P> {
    /// [`new`](Self::new) with the atomics of any [`Primitive`].
    pub fn with_primitive(objects: usize) -> Result<Self, Error> {
        check(objects, 1)?;
        let mut below = NONE;
        let nodes = boxed(objects, objects, || {
            let node = Node {
                references: P::U32::new(1),
                next: P::U32::new(below),
            };
            below += 1;
            CachePadded::new(node)
        })?;
        Ok(Freelist {
            head: CachePadded::new(P::U32::new(below)),
            nodes,
            ledger: Ledger::new(objects)?,
        })
    }

    #[inline]
    fn node(&self, node: u32) -> &Node<P> {
        &self.nodes[node as usize - 1]
    }

    /// Puts a node without references on the list.
    fn link(&self, at: u32) {
        let node = self.node(at);
        let mut head = self.head.load(Relaxed);
        loop {
            node.next.store(head, Relaxed);
            node.references.store(1, Release);
            match self.head.compare_exchange(head, at, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => {
                    head = now;
                    // Another thread took a reference meanwhile: then that thread puts it on the list.
                    let before = node.references.fetch_add(SHOULD_BE_ON - 1, Release);
                    if before != 1 {
                        return;
                    }
                }
            }
        }
    }
}

impl<P: Primitive> Pool for Freelist<P>
where
    Self: Send + Sync,
{
    fn capacity(&self) -> usize {
        self.nodes.len()
    }

    #[inline]
    fn pop(&self, _cpu: usize) -> Option<Object> {
        let mut head = self.head.load(Acquire);
        while head != NONE {
            let at = head;
            let node = self.node(at);
            let references = node.references.load(Relaxed);
            let held = references & REFERENCES != 0
                && node
                    .references
                    .compare_exchange(references, references + 1, Acquire, Relaxed)
                    .is_ok();
            if !held {
                P::relax();
                head = self.head.load(Acquire);
                continue;
            }
            // With a reference on it, the node can't leave the list and come back: its next stays true.
            let next = node.next.load(Relaxed);
            match self.head.compare_exchange(at, next, Acquire, Relaxed) {
                Ok(_) => {
                    // The list's reference and ours.
                    node.references.fetch_add(0u32.wrapping_sub(2), AcqRel);
                    self.ledger.out(at - 1);
                    return Some(Object(at - 1));
                }
                Err(now) => {
                    head = now;
                    // It was popped by another, and returned while we held it: that left it to us.
                    let before = node.references.fetch_add(0u32.wrapping_sub(1), AcqRel);
                    if before == SHOULD_BE_ON + 1 {
                        self.link(at);
                    }
                }
            }
        }
        None
    }

    #[inline]
    fn push(&self, _cpu: usize, Object(index): Object) {
        self.ledger.back(index);
        let at = index + 1;
        let before = self.node(at).references.fetch_add(SHOULD_BE_ON, Release);
        if before == 0 {
            self.link(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_in_first_out() -> Result<(), Error> {
        let pool = Freelist::new(3)?;
        let indices = [0; 3].map(|cpu| pool.pop(cpu).expect("three are in").index());
        assert_eq!(indices, [2, 1, 0]);
        assert_eq!(pool.pop(0), None);
        for index in [1, 2] {
            pool.push(0, Object::at(index));
        }
        assert_eq!(pool.pop(0), Some(Object(2)));
        Ok(())
    }

    #[test]
    fn who_lets_go_of_a_returned_node_last_links_it() -> Result<(), Error> {
        let pool = Freelist::new(2)?;
        // As another thread does that has read the head and not gone on yet.
        let held = pool.node(2);
        held.references.fetch_add(1, Acquire);
        let object = pool.pop(0).expect("two are in");
        assert_eq!(object, Object(1));
        pool.push(0, object);
        assert_eq!(pool.head.load(Relaxed), 1, "it is still held");
        assert_eq!(held.references.load(Relaxed), SHOULD_BE_ON + 1);
        pool.link(2);
        assert_eq!(pool.pop(0), Some(Object(1)));
        Ok(())
    }
}
