//! Why a pool can't be made.

/// Why a pool can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It would never hand out anything.
    #[error("a pool needs an object at least, and this one was to have none")]
    NoObjects,
    /// Indices would not fit.
    #[error("a pool has at most {most} objects, and this one was to have {asked}")]
    TooManyObjects {
        /// How many were asked for.
        asked: usize,
        /// How many there can be.
        most: usize,
    },
    /// Nothing would run.
    #[error("a pool serves a CPU at least, and this one was to serve none")]
    NoCpus,
    /// The allocator has no room.
    #[error("no memory for {objects} objects ({bytes} bytes)")]
    NoMemory {
        /// Objects asked for.
        objects: usize,
        /// What they would have taken in bytes.
        bytes: usize,
    },
}

/// The most objects of a pool: what they are rounded up to, a power of two, must fit in 32 bits.
pub(crate) const MOST: usize = 1 << 31;

/// Refuses what can be no pool.
pub(crate) fn check(objects: usize, cpus: usize) -> Result<(), Error> {
    match (objects, cpus) {
        (0, _) => Err(Error::NoObjects),
        (_, 0) => Err(Error::NoCpus),
        (asked, _) if asked > MOST => Err(Error::TooManyObjects { asked, most: MOST }),
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
