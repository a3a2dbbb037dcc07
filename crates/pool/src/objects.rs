//! Pools of values: the values that a pool's objects represent, created once and handed out one by one.
#![allow(unsafe_code)]

use alloc::{boxed::Box, vec::Vec};
use core::{
    cell::UnsafeCell,
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use crossbeam_utils::CachePadded;

use crate::{ArrayQueue, Error, Freelist, Object, PerCpuPool, Pool, Stride, error::boxed};

/// Values, each on its own cache lines, and a pool that says whose they are.
///
/// ```
/// use bpfcost_pool::Objects;
///
/// let buffers = Objects::per_cpu(vec![[0u8; 512]; 8], 4)?;
/// let mut buffer = buffers.take(0).expect("all eight are in");
/// buffer[0] = 1;
/// drop(buffer); // and it is in again
/// # Ok::<(), bpfcost_pool::Error>(())
/// ```
#[derive(Debug)]
pub struct Objects<T, P: Pool> {
    pool: P,
    values: Box<[CachePadded<UnsafeCell<T>>]>,
}

/// A value of [`Objects`], while it is out. Dropped, it goes back.
///
/// Threads share it where they might share the value:
///
/// ```compile_fail,E0277
/// fn share(_: impl Sync) {}
/// let cells = bpfcost_pool::Objects::freelist(vec![std::cell::Cell::new(0)])?;
/// share(cells.take(0));
/// # Ok::<(), bpfcost_pool::Error>(())
/// ```
pub struct ObjectGuard<'a, T, P: Pool> {
    objects: &'a Objects<T, P>,
    index: u32,
    cpu: usize,
    /// Makes the guard shared and sent as a `&mut T` is.
    exclusive: PhantomData<&'a mut T>,
}

impl<T> Objects<T, Freelist> {
    /// These values in a [`Freelist`]. No values, too many, or no memory for them are an error.
    pub fn freelist(values: Vec<T>) -> Result<Self, Error> {
        let pool = Freelist::new(values.len())?;
        // SAFETY: the pool is new, of this crate, and not shared with anything else.
        unsafe { Self::over(pool, values) }
    }
}

impl<T> Objects<T, ArrayQueue> {
    /// These values in an [`ArrayQueue`]. No values, too many, or no memory for them are an error.
    pub fn array(values: Vec<T>, cpus: usize, stride: Stride) -> Result<Self, Error> {
        let pool = ArrayQueue::new(values.len(), cpus, stride)?;
        // SAFETY: the pool is new, of this crate, and not shared with anything else.
        unsafe { Self::over(pool, values) }
    }
}

impl<T> Objects<T, PerCpuPool> {
    /// These values in a [`PerCpuPool`]. No values, too many, or no memory for them are an error.
    pub fn per_cpu(values: Vec<T>, cpus: usize) -> Result<Self, Error> {
        let pool = PerCpuPool::new(values.len(), cpus)?;
        // SAFETY: the pool is new, of this crate, and not shared with anything else.
        unsafe { Self::over(pool, values) }
    }
}

impl<T, P: Pool> Objects<T, P> {
    /// These values in any pool, which must have as many objects.
    ///
    /// # Safety
    ///
    /// From now on the pool must not hand out an object that is out already, and what a thread did before it
    /// pushed one must happen before what another does after it popped it. No object may have been pushed to
    /// it before that was not popped from it.
    pub unsafe fn over(pool: P, values: Vec<T>) -> Result<Self, Error> {
        let count = values.len();
        if count != pool.capacity() {
            return Err(Error::OtherCount {
                objects: pool.capacity(),
                values: count,
            });
        }
        let mut values = values.into_iter();
        let values = boxed(count, count, || {
            let value = values.next().expect("there are as many");
            CachePadded::new(UnsafeCell::new(value))
        })?;
        Ok(Objects { pool, values })
    }

    /// The number of values, in and out.
    pub fn capacity(&self) -> usize {
        self.values.len()
    }

    /// Takes a value out; `cpu` is a hint, as for [`Pool::pop`]. `None`, at once, where none is found.
    #[inline]
    pub fn take(&self, cpu: usize) -> Option<ObjectGuard<'_, T, P>> {
        let Object(index) = self.pool.pop(cpu)?;
        Some(ObjectGuard {
            objects: self,
            index,
            cpu,
            exclusive: PhantomData,
        })
    }

    /// All values, in the order that they were given, also those that were taken and never dropped.
    pub fn into_inner(self) -> Vec<T> {
        let values = self.values.into_iter();
        values
            .map(|value| value.into_inner().into_inner())
            .collect()
    }
}

// SAFETY: a value is out to one thread at a time, so threads that share this send each other values and never
// share one; the pool is shared as its own type allows.
unsafe impl<T: Send, P: Pool> Sync for Objects<T, P> {}

impl<T, P: Pool> ObjectGuard<'_, T, P> {
    /// Gives the value back where another CPU finds it first: for threads that have moved since they took
    /// it, and do know where to.
    #[inline]
    pub fn give_back(mut self, cpu: usize) {
        self.cpu = cpu;
    }

    #[inline]
    fn cell(&self) -> *mut T {
        self.objects.values[self.index as usize].get()
    }
}

impl<T: fmt::Debug, P: Pool> fmt::Debug for ObjectGuard<'_, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T, P: Pool> Deref for ObjectGuard<'_, T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the pool gave this index to no other, and it comes back only when this is dropped.
        unsafe { &*self.cell() }
    }
}

impl<T, P: Pool> DerefMut for ObjectGuard<'_, T, P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and this is borrowed mutably.
        unsafe { &mut *self.cell() }
    }
}

impl<T, P: Pool> Drop for ObjectGuard<'_, T, P> {
    /// Returns the object to the CPU for which it was taken: the thread ran there then, and asking anew would cost as
    /// much as the rest.
    #[inline]
    fn drop(&mut self) {
        self.objects.pool.push(self.cpu, Object(self.index));
    }
}
