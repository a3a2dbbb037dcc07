//! Ticks of the machine's timer, and work that is timed outside of BPF.

use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use crate::{cpu, error::Result};

/// Time before a tick for which its CPU is awake: three times as long as a kernel lets a sleep last over its time.
const AWAKE: Duration = Duration::from_micros(150);

/// No kernel ticks less often than 100 times a second, but for a CPU that sleeps: this one is awake in time.
const LONGEST_TICK: Duration = Duration::from_millis(10);

/// Time that the calling thread worked on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkTime {
    /// Nanoseconds.
    pub ns: f64,
    /// Timer ticks of the machine meanwhile.
    pub ticks: u64,
    /// Times that the thread slept meanwhile.
    pub waits: u64,
}

/// Times work of the calling thread outside of BPF; `after_tick`: as that of a [`Request`](super::Request).
pub(crate) fn time_work<T>(after_tick: bool, work: impl FnOnce() -> T) -> Result<(T, WorkTime)> {
    if after_tick {
        wait_for_tick();
    }
    let waits_before = cpu::waits()?;
    let since = |clock, start| clock_gettime(clock) - start;
    let coarse_start = clock_gettime(ClockId::MonotonicCoarse);
    let start = clock_gettime(ClockId::Monotonic);
    let result = work();
    let elapsed = since(ClockId::Monotonic, start);
    let coarse = since(ClockId::MonotonicCoarse, coarse_start);
    let nanos = |time: Timespec| time.tv_sec as f64 * 1e9 + time.tv_nsec as f64;
    let tick = nanos(clock_getres(ClockId::MonotonicCoarse)).max(1.0);
    let time = WorkTime {
        ns: nanos(elapsed),
        ticks: (nanos(coarse) / tick).round() as u64,
        waits: cpu::waits()? - waits_before,
    };
    Ok((result, time))
}

/// Waits until the kernel's coarse clock moves: it does so at each tick. Most of the time is slept through, which takes no
/// instructions; the rest is not, so that the CPU is awake when the tick comes.
pub(crate) fn wait_for_tick() {
    let coarse = || clock_gettime(ClockId::MonotonicCoarse);
    let begun = Instant::now();
    let before = coarse();
    let next = before + clock_getres(ClockId::MonotonicCoarse);
    let now = clock_gettime(ClockId::Monotonic);
    let left = next
        .checked_sub(now)
        .and_then(|left| Duration::try_from(left).ok());
    if let Some(left) = left.and_then(|left| left.checked_sub(AWAKE)) {
        thread::sleep(left);
    }
    while coarse() == before && begun.elapsed() < LONGEST_TICK {
        calculate();
    }
}

/// Takes some microseconds. Where QEMU counts instructions, reading the clock takes it as long as hundreds of them, and a
/// run's time was mostly spent so; jumps take it long too.
fn calculate() {
    let mut value = black_box(1_u32);
    for _ in 0..16 {
        // The compiler unrolls this one.
        for _ in 0..24 {
            value ^= value << 13;
            value ^= value >> 17;
            value ^= value << 5;
        }
        value = black_box(value);
    }
}
