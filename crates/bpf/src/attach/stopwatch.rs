//! Times a batch of events that user space makes.
//!
//! In the number: the work, and one read of the clock. The clock is CLOCK_MONOTONIC, read without a
//! system call; BPF programs read the same one.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::{BatchRequest, BatchResult};
use crate::{cpu, error::Result, timing::wait_for_tick};

/// Does the work, which makes as many events as asked for.
pub(super) fn time(ask: &BatchRequest, work: impl FnOnce() -> Result<()>) -> Result<BatchResult> {
    let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse)).max(1);
    if ask.after_tick {
        wait_for_tick();
    }
    let waits = cpu::waits()?;
    let coarse = now(ClockId::MonotonicCoarse);
    let start = monotonic_ns();
    work()?;
    let end = monotonic_ns();
    // The coarse clock moves at ticks alone, by about their distance.
    let moved = now(ClockId::MonotonicCoarse).saturating_sub(coarse);
    Ok(BatchResult {
        events: ask.events,
        made: ask.events,
        elapsed_ns: end.saturating_sub(start) as f64,
        ticks: (moved + tick_ns / 2) / tick_ns,
        waits: cpu::waits()?.saturating_sub(waits),
    })
}

/// The time of CLOCK_MONOTONIC.
pub(super) fn monotonic_ns() -> u64 {
    now(ClockId::Monotonic)
}

fn now(clock: ClockId) -> u64 {
    nanos(clock_gettime(clock))
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + rest
}
