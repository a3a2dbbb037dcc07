//! The tool's own death at a chosen step, for tests: between any two things that it does to the process.

#![allow(unsafe_code, reason = "a signal to the process itself")]

use std::sync::atomic::{AtomicU64, Ordering};

/// The steps that are left, 0 where it does not die.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Has this process kill itself by SIGKILL at a step from now, the first of which is 1; never where it is 0.
pub fn die_at(step: u64) {
    LEFT.store(step, Ordering::Relaxed);
}

pub(super) fn step() {
    if LEFT.load(Ordering::Relaxed) != 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
        // SAFETY: neither call touches memory; the first does not return.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
