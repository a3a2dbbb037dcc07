//! A stimulus, and one that is prepared.

use std::{fmt, io, path::PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::error::{Error, Result, Step};

/// Resources that the caller provides.
#[derive(Clone, Debug)]
pub struct Context {
    /// Folder in which stimuli make their own temporary folders.
    pub folder: PathBuf,
    /// True if no other processes run on this machine, so that the kernel may choose one to kill.
    pub is_alone: bool,
}

impl Context {
    /// The context whose files are in this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            is_alone: false,
        }
    }

    /// The same, on a machine without other processes: a guest.
    #[must_use]
    pub fn alone(self) -> Self {
        Self {
            is_alone: true,
            ..self
        }
    }

    pub(crate) fn temporary_folder(&self) -> Result<TempDir> {
        tempfile::Builder::new()
            .prefix("stimulus-")
            .tempdir_in(&self.folder)
            .step("make a temporary folder")
    }
}

/// A kind of work that leads to events in the kernel.
pub struct Stimulus {
    /// Name, in kebab case.
    pub name: &'static str,
    /// System calls of one operation, on x86-64 and with glibc. The housekeeping of the C library around a new process or
    /// thread is left out (`rt_sigprocmask`, `prlimit64`, `rseq`, …).
    pub about: &'static str,
    /// True if what an operation is for fails, so that programs take the way of failures.
    pub fails: bool,
    prepare: fn(&Context) -> Result<Prepared>,
}

impl Stimulus {
    /// Defines a stimulus.
    pub const fn new(
        name: &'static str,
        about: &'static str,
        prepare: fn(&Context) -> Result<Prepared>,
    ) -> Self {
        Self {
            name,
            about,
            fails: false,
            prepare,
        }
    }

    /// Marks the stimulus as one whose main call fails.
    #[must_use]
    pub const fn failing(self) -> Self {
        Self {
            fails: true,
            ..self
        }
    }

    /// Gets ready, and performs one operation as a rehearsal. Fails if the machine does not support or permit it.
    pub fn prepare(&self, context: &Context) -> Result<Prepared> {
        let mut prepared = (self.prepare)(context)?;
        prepared.operate().map_err(Error::Operation)?;
        Ok(prepared)
    }
}

impl fmt::Debug for Stimulus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stimulus").field(&self.name).finish()
    }
}

/// A stimulus that is ready. Dropping it undoes the preparation.
pub struct Prepared(Box<dyn FnMut() -> io::Result<()> + Send>);

impl Prepared {
    /// A prepared stimulus with this operation, which owns all that it needs. Note that a closure captures single
    /// fields: borrow a whole guard first.
    pub fn new(operation: impl FnMut() -> io::Result<()> + Send + 'static) -> Self {
        Self(Box::new(operation))
    }

    /// Performs one operation.
    pub fn operate(&mut self) -> io::Result<()> {
        (self.0)()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

/// Succeeds if the call failed as expected.
pub(crate) fn expect_error<T>(
    result: Result<T, impl Into<io::Error>>,
    expected: Errno,
) -> io::Result<()> {
    match result.map_err(Into::into) {
        Ok(_) => Err(io::Error::other(format!("expected a failure: {expected}"))),
        Err(error) if error.raw_os_error() == Some(expected.raw_os_error()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Succeeds if so many bytes were transferred.
pub(crate) fn expect_bytes(actual: usize, expected: usize) -> io::Result<()> {
    if actual == expected {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "expected {expected} bytes, got {actual}"
        )))
    }
}
