//! Atomics side by side, on cache lines that nothing else is on.

use alloc::boxed::Box;

use crossbeam_utils::CachePadded;

use crate::{Error, error::boxed};

/// Values of which `N` fill what CPUs fetch together: two cache lines where they are fetched in pairs.
#[derive(Debug)]
pub(crate) struct Lines<A, const N: usize>(Box<[CachePadded<[A; N]>]>);

impl<A, const N: usize> Lines<A, N> {
    /// So many at least, for so many objects, each made of its index.
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

    #[inline]
    pub(crate) fn at(&self, index: usize) -> &A {
        &self.0[index / N][index % N]
    }
}
