//! The queue of slots that forked children take, in the memory that all of them share.
//!
//! At the first positions are all slots, in their order. Behind them, the tool adds those of children that ended: a slot
//! holds sums alone, so that the next child adds to them. A child takes the next position, and then maps its slot
//! (`trampoline/child.rs`); between the two, nothing shows that the slot is its own. So the slot's generation is counted
//! before the tool looks for mappings the last time: either it sees the mapping, or the child sees another generation than
//! before, and takes another position.

#![allow(unsafe_code, reason = "the queue is mapped")]

use super::{
    children::failed,
    error::Result,
    layout::{CHILDREN, CHILDREN_FREED, CHILDREN_GENERATIONS, CHILDREN_HEAD, CHILDREN_QUEUE},
};
use rustix::{
    fd::AsFd,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    collections::BTreeSet,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU16, AtomicU64, Ordering, fence},
};

/// The queue, mapped here.
#[derive(Debug)]
pub(super) struct Queue(NonNull<u8>);

// SAFETY: the mapping belongs to this value, and is used through atomics alone.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// That at the start of a file.
    pub(super) fn map(file: impl AsFd) -> Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (bytes, flags) = (CHILDREN_HEAD as usize, MapFlags::SHARED);
        // SAFETY: a new mapping, where the kernel likes.
        let mapped = unsafe { mmap(ptr::null_mut(), bytes, access, flags, file, 0) };
        let mapped = mapped.map_err(|error| failed(error.into()))?;
        let start = NonNull::new(mapped.cast());
        Ok(Queue(start.expect("nothing is mapped at 0")))
    }

    /// Number of slots that children have or had.
    pub(super) fn used(&self) -> u64 {
        self.next().min(CHILDREN)
    }

    /// Number of children that may still come.
    pub(super) fn left(&self) -> u64 {
        self.end().saturating_sub(self.next())
    }

    /// Slots of children that came, but for those in the queue again and those that are mapped.
    pub(super) fn unmapped(&self, mapped: &BTreeSet<u64>) -> BTreeSet<u64> {
        let waiting: BTreeSet<u64> = (self.next()..self.end()).map(|at| self.slot(at)).collect();
        let came = (0..self.used()).filter(|slot| !waiting.contains(slot));
        came.filter(|slot| !mapped.contains(slot)).collect()
    }

    /// Has children that took these slots and did not map them yet take others.
    pub(super) fn withdraw(&self, slots: &BTreeSet<u64>) {
        for &slot in slots {
            self.half(CHILDREN_GENERATIONS + 2 * slot)
                .fetch_add(1, Ordering::SeqCst);
        }
        fence(Ordering::SeqCst);
    }

    /// Adds a slot. The caller is the only one that does.
    pub(super) fn add(&self, slot: u64) {
        let end = self.end();
        self.half(CHILDREN_QUEUE + 2 * (end % CHILDREN))
            .store(slot as u16, Ordering::Relaxed);
        let freed = self.number(CHILDREN_FREED);
        freed.store(end + 1 - CHILDREN, Ordering::Release);
    }

    fn slot(&self, position: u64) -> u64 {
        if position < CHILDREN {
            return position;
        }
        let slot = self.half(CHILDREN_QUEUE + 2 * (position % CHILDREN));
        slot.load(Ordering::Relaxed).into()
    }

    /// The position that the next child takes.
    fn next(&self) -> u64 {
        self.number(0).load(Ordering::Acquire)
    }

    /// The position behind the last.
    fn end(&self) -> u64 {
        CHILDREN + self.number(CHILDREN_FREED).load(Ordering::Acquire)
    }

    fn number(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= CHILDREN_HEAD);
        // SAFETY: inside of the mapping, aligned, and used through atomics alone.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(offset as usize).cast()) }
    }

    fn half(&self, offset: u64) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2) && offset + 2 <= CHILDREN_HEAD);
        // SAFETY: inside of the mapping, aligned, and used through atomics alone.
        unsafe { AtomicU16::from_ptr(self.0.as_ptr().add(offset as usize).cast()) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), CHILDREN_HEAD as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            children::Children,
            layout::{CHILD, CHILDREN_BYTES},
        },
        *,
    };
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;

    /// A child that was about to map its slot when the tool looked for the first time has it.
    #[test]
    fn a_slot_that_is_mapped_late_is_not_given_to_another() {
        let file = memfd_create("uprobe-children", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, CHILDREN_BYTES).unwrap();
        let children = Children::from_file(File::from(file.try_clone().unwrap())).unwrap();
        let queue = Queue::map(&file).unwrap();
        queue.number(0).store(600, Ordering::SeqCst);
        let late = 7;
        let map = || {
            let offset = CHILDREN_HEAD + late * CHILD;
            let (access, flags) = (ProtFlags::READ, MapFlags::SHARED);
            // SAFETY: a new mapping, which nothing uses.
            let mapped = unsafe {
                mmap(
                    ptr::null_mut(),
                    CHILD as usize,
                    access,
                    flags,
                    &file,
                    offset,
                )
            };
            mapped.unwrap();
        };
        children.reuse(map).unwrap();
        assert_eq!(queue.left(), CHILDREN - 1);
        let added: BTreeSet<u64> = (CHILDREN..queue.end()).map(|at| queue.slot(at)).collect();
        let expected: BTreeSet<u64> = (0..600).filter(|slot| *slot != late).collect();
        assert_eq!(added, expected);
        // What is in the queue is not added once more; nothing is done while there is enough.
        queue.number(0).store(1000, Ordering::SeqCst);
        children.reuse(|| panic!("there is enough")).unwrap();
        queue.number(0).store(1200, Ordering::SeqCst);
        children.reuse(|| ()).unwrap();
        assert_eq!(queue.left(), CHILDREN - 1);
        let all: BTreeSet<u64> = (1200..queue.end()).map(|at| queue.slot(at)).collect();
        assert_eq!(all.len() as u64, CHILDREN - 1);
    }
}
