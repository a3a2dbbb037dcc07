//! Atomics side by side, on cache lines that they share with nothing else.

#![allow(unsafe_code)]

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

use crate::{Error, error::boxed};

/// Values of which `N` fill what CPUs fetch together: two cache lines where they are fetched in pairs.
#[derive(Debug)]
pub(crate) struct Lines<A, const N: usize>(Box<[CachePadded<[A; N]>]>);

impl<A, const N: usize> Lines<A, N> {
    /// At least `length` values for a pool of `objects` objects. `make` makes each from its index.
    pub(crate) fn new(
        objects: usize,
        length: usize,
        mut make: impl FnMut(usize) -> A,
    ) -> Result<Self, Error> {
        let mut next = 0;
        let lines = boxed(objects, length.div_ceil(N), || {
            CachePadded::new(core::array::from_fn(|_| {
                next += 1;
                make(next - 1)
            }))
        })?;
        Ok(Lines(lines))
    }

    /// True if values of different lines follow each other as those of one line do.
    const FLAT: bool = size_of::<CachePadded<[A; N]>>() == N * size_of::<A>();

    /// One of them. On the way of every pop and push, right behind an atomic change, which holds up all reads:
    /// so it takes one addition, where two indices take five steps that wait for each other.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> &A {
        let line = &self.0[index / N];
        if Self::FLAT {
            // SAFETY: the line of that index is one of the slice, and lines are arrays of `N` without a gap
            // behind, so that this lies in it: in the slice from which the pointer is.
            unsafe { &*self.0.as_ptr().cast::<A>().add(index) }
        } else {
            &line[index % N]
        }
    }
}
