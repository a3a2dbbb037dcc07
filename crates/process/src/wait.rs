//! Waiting for what another process, a thread or the kernel does, where nothing wakes this one.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use super::ProcessClock;

/// Calls `done` every `step` until it returns true; returns false if it has not by the time `limit`.
///
/// `limit` is wall time; [`wait_for`] has one that a busy machine does not shorten.
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

/// Calls `done` every `step` until it returns true; returns false if it has not by the time that the processes have had
/// `limit`. Time for which one of them or of their descendants waits for a CPU does not count.
pub fn wait_for(
    pids: &[u32],
    limit: Duration,
    step: Duration,
    mut done: impl FnMut() -> bool,
) -> bool {
    let clocks: Vec<(u32, ProcessClock)> = pids
        .iter()
        .map(|pid| (*pid, ProcessClock::start(*pid)))
        .collect();
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > limit && clocks.iter().all(|(pid, clock)| clock.exceeds(*pid, limit)) {
            return false;
        }
        sleep(step);
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

    #[test]
    fn a_wait_for_processes_ends_by_the_time_that_they_had() {
        let (limit, step) = (Duration::from_millis(5), Duration::from_millis(1));
        for pids in [&[][..], &[std::process::id()], &[u32::MAX >> 1]] {
            assert!(!wait_for(pids, limit, step, || false));
            assert!(wait_for(pids, Duration::ZERO, step, || true));
        }
    }
}
