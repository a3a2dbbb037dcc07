//! Errors in creating a pool.

/// The reason for which a pool can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The pool would never hand out anything.
    #[error("a pool needs an object at least, and this one was to have none")]
    NoObjects,
    /// Indices would not fit.
    #[error("a pool has at most {most} objects, and this one was to have {asked}")]
    TooManyObjects {
        /// The number that was asked for.
        asked: usize,
        /// The largest possible number.
        most: usize,
    },
    /// Nothing would run.
    #[error("a pool serves a CPU at least, and this one was to serve none")]
    NoCpus,
    /// The numbers of objects and values differ, so that some would belong to nothing.
    #[error("a pool of {objects} objects takes as many values, and was to have {values}")]
    OtherCount {
        /// Objects of the pool.
        objects: usize,
        /// Values that were given.
        values: usize,
    },
    /// The allocator has no room.
    #[error("no memory for {objects} objects ({bytes} bytes)")]
    NoMemory {
        /// Objects asked for.
        objects: usize,
        /// The bytes that they would have taken.
        bytes: usize,
    },
    /// There is no room for the stacks of a simulation.
    #[cfg(feature = "model")]
    #[error("no memory for the stacks of {threads} simulated threads")]
    NoStacks {
        /// Threads of the simulation.
        threads: u32,
    },
}

/// The most objects of a pool: what they are rounded up to, a power of two, must fit in 32 bits.
pub(crate) const MAX_OBJECTS: usize = 1 << 31;

/// Refuses what can be no pool.
pub(crate) fn check(objects: usize, cpus: usize) -> Result<(), Error> {
    match (objects, cpus) {
        (0, _) => Err(Error::NoObjects),
        (_, 0) => Err(Error::NoCpus),
        (asked, _) if asked > MAX_OBJECTS => Err(Error::TooManyObjects {
            asked,
            most: MAX_OBJECTS,
        }),
        _ => Ok(()),
    }
}

/// `length` values, or an error that says how much memory that would be.
pub(crate) fn boxed<T>(
    objects: usize,
    length: usize,
    make: impl FnMut() -> T,
) -> Result<alloc::boxed::Box<[T]>, Error> {
    let bytes = length.saturating_mul(size_of::<T>());
    let mut values = alloc::vec::Vec::new();
    values
        .try_reserve_exact(length)
        .map_err(|_| Error::NoMemory { objects, bytes })?;
    values.resize_with(length, make);
    Ok(values.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrayQueue, Freelist, PerCpuPool, Stride::Padded};

    /// All pools, made or not.
    fn create(objects: usize, cpus: usize) -> [Result<(), Error>; 3] {
        [
            Freelist::new(objects).map(drop),
            ArrayQueue::new(objects, cpus, Padded).map(drop),
            PerCpuPool::new(objects, cpus).map(drop),
        ]
    }

    #[test]
    fn what_can_be_no_pool_is_refused() {
        assert_eq!(create(0, 1), [Err(Error::NoObjects); 3]);
        assert_eq!(create(1, 0)[1..], [Err(Error::NoCpus); 2]);
        let asked = MAX_OBJECTS + 1;
        assert_eq!(
            create(asked, 1),
            [Err(Error::TooManyObjects {
                asked,
                most: MAX_OBJECTS
            }); 3]
        );
    }

    #[test]
    fn what_no_memory_could_hold_is_refused_without_a_panic() {
        let [_, array, percpu] = create(3, usize::MAX);
        assert_eq!(array, Ok(()), "CPUs beyond its slots take nothing");
        let bytes = usize::MAX;
        assert_eq!(percpu, Err(Error::NoMemory { objects: 3, bytes }));
        assert_eq!(
            boxed(3, usize::MAX / 8, || 0u64).map(drop),
            Err(Error::NoMemory {
                objects: 3,
                bytes: usize::MAX - 7
            })
        );
    }

    #[test]
    fn one_object_is_a_pool() {
        assert_eq!(create(1, 64), [Ok(()); 3]);
    }
}
