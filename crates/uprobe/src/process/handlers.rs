//! The signal handlers of a process that the tool replaced, in memory that its tracer process shares.

use super::{error::Result, memory::Memory};
use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

/// The signals of faults.
pub(super) const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The bytes of [`Action`].
const BYTES: usize = 32;

/// The kernel's `struct sigaction`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

/// Handlers to restore: none where `scratch` is 0.
#[derive(Default)]
pub(super) struct Handlers {
    /// Address at which system calls of the process find their arguments.
    scratch: AtomicU64,
    ours: AtomicU64,
    old: [[AtomicU64; 4]; 2],
}

impl Action {
    /// A flag that libc keeps to itself: there is a restorer.
    pub(super) const RESTORER: i32 = 0x0400_0000;

    pub(super) fn read(memory: &Memory, at: u64) -> Result<Self> {
        let bytes = memory.read_vec(at, BYTES)?;
        let word = |index: usize| {
            let word = bytes[8 * index..][..8].try_into().expect("8 bytes");
            u64::from_le_bytes(word)
        };
        Ok(Action::from_words(array::from_fn(word)))
    }

    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (into, word) in bytes.chunks_exact_mut(8).zip(self.to_words()) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn to_words(self) -> [u64; 4] {
        [self.handler, self.flags, self.restorer, self.mask]
    }

    fn from_words([handler, flags, restorer, mask]: [u64; 4]) -> Self {
        Action {
            handler,
            flags,
            restorer,
            mask,
        }
    }
}

impl Handlers {
    /// Says what is about to be replaced by which handler.
    pub(super) fn set(&self, scratch: u64, ours: u64, old: [Action; 2]) {
        for (into, old) in self.old.iter().zip(old) {
            for (into, word) in into.iter().zip(old.to_words()) {
                into.store(word, Ordering::Relaxed);
            }
        }
        self.ours.store(ours, Ordering::Relaxed);
        self.scratch.store(scratch, Ordering::Release);
    }

    /// Returns what was replaced last.
    pub(super) fn old(&self) -> [Action; 2] {
        let words = |old: &[AtomicU64; 4]| old.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.old
            .each_ref()
            .map(|old| Action::from_words(words(old)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scratch.load(Ordering::Acquire) == 0
    }

    /// Restores the handlers, where they are still those that replaced them. `call` has a thread of the process, all of
    /// which is stopped, call rt_sigaction with these arguments.
    pub(super) fn restore(
        &self,
        memory: &Memory,
        mut call: impl FnMut([u64; 6]) -> Result<u64>,
    ) -> Result<()> {
        let scratch = self.scratch.load(Ordering::Acquire);
        if scratch == 0 {
            return Ok(());
        }
        for (signal, old) in SIGNALS.into_iter().zip(self.old()) {
            call([signal as u64, 0, scratch, 8, 0, 0])?;
            if Action::read(memory, scratch)?.handler == self.ours.load(Ordering::Relaxed) {
                memory.write(scratch, &old.to_bytes())?;
                call([signal as u64, scratch, 0, 8, 0, 0])?;
            }
        }
        self.scratch.store(0, Ordering::Release);
        Ok(())
    }
}
