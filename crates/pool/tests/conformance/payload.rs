//! The memory that objects stand for: its owner writes it without any atomics.
#![allow(
    unsafe_code,
    reason = "exclusive memory by ownership is what a pool is for, and what is tested here"
)]

use std::cell::UnsafeCell;

use bpfcost_pool::Object;

/// The number of owners that each object has had.
pub(crate) struct Payloads(Box<[UnsafeCell<u64>]>);

// SAFETY: a payload is touched by the owner of its object alone; that a pool keeps it so is what Miri and
// ThreadSanitizer look at, and lost counts show without them.
unsafe impl Sync for Payloads {}

impl Payloads {
    pub(crate) fn new(objects: usize) -> Self {
        Payloads((0..objects).map(|_| UnsafeCell::new(0)).collect())
    }

    /// Counts one more owner.
    pub(crate) fn count_up(&self, object: &Object) {
        // SAFETY: the caller owns the object.
        unsafe { *self.0[object.index()].get() += 1 }
    }

    /// All counts together, when no object is owned any more.
    pub(crate) fn sum(self) -> u64 {
        self.0.into_iter().map(UnsafeCell::into_inner).sum()
    }
}
