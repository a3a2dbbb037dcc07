//! Waiting for what another process, a thread or the kernel does, where nothing wakes this one.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// Calls `done` every `step` until it returns true; returns false if it has not by the time `limit`.
///
/// `limit` is wall time. [`ProcessClock`](super::ProcessClock) has limits that a busy machine does not shorten.
pub fn wait_until(limit: Duration, step: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        sleep(step.min(left));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_done_or_at_the_limit() {
        let (limit, step) = (Duration::from_millis(5), Duration::from_millis(1));
        assert!(!wait_until(limit, step, || false));
        assert!(!wait_until(Duration::ZERO, step, || false));
        let mut calls = 0;
        assert!(wait_until(Duration::MAX, step, || {
            calls += 1;
            calls == 3
        }));
        assert!(wait_until(Duration::ZERO, step, || true));
    }
}
