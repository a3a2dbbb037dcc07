//! Times a batch of events that user space makes.
//!
//! In the number: the work, and one read of the clock; those between slices are taken off. The clock is
//! CLOCK_MONOTONIC, read without a system call; BPF programs read the same one.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::{BatchRequest, BatchResult};
use crate::{
    cpu,
    error::Result,
    timing::{self, wait_for_tick},
};

/// Clock reads after a batch; the fastest is the cost of one.
const CLOCK_READS: usize = 4;

/// Does the work, which makes as many events as it is given, slice by slice.
pub(super) fn time(ask: &BatchRequest, work: impl FnMut(u64) -> Result<()>) -> Result<BatchResult> {
    time_cut(ask, timing::slice(ask.events, ask.after_tick), work)
}

/// Does it in one piece, which needs no memory.
pub(super) fn time_whole(
    ask: &BatchRequest,
    work: impl FnMut(u64) -> Result<()>,
) -> Result<BatchResult> {
    time_cut(ask, 0, work)
}

fn time_cut(
    ask: &BatchRequest,
    slice: u64,
    mut work: impl FnMut(u64) -> Result<()>,
) -> Result<BatchResult> {
    let most = if slice == 0 { 0 } else { timing::SLICES };
    let mut edges = Vec::with_capacity(most as usize);
    let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse)).max(1);
    if ask.after_tick {
        wait_for_tick();
    }
    let waits = cpu::waits()?;
    let coarse = now(ClockId::MonotonicCoarse);
    let start = monotonic_ns();
    let mut left = ask.events;
    while slice != 0 && left > slice {
        work(slice)?;
        left -= slice;
        edges.push(monotonic_ns());
    }
    work(left)?;
    let end = monotonic_ns();
    // The coarse clock moves at ticks alone, by about their distance.
    let moved = now(ClockId::MonotonicCoarse).saturating_sub(coarse);
    let clock_ns = if edges.is_empty() { 0 } else { clock_cost_ns() };
    let reads_ns = edges.len() as u64 * clock_ns;
    Ok(BatchResult {
        events: ask.events,
        made: ask.events,
        elapsed_ns: timing::without_reads(end.saturating_sub(start), reads_ns),
        ticks: (moved + tick_ns / 2) / tick_ns,
        waits: cpu::waits()?.saturating_sub(waits),
        slices: timing::slices(&edges, slice, clock_ns),
    })
}

/// The cost of a clock read that follows another: the least of a few.
fn clock_cost_ns() -> u64 {
    let reads = [(); CLOCK_READS + 1].map(|()| monotonic_ns());
    let costs = reads.windows(2).map(|reads| reads[1] - reads[0]);
    costs.min().unwrap_or(0)
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
