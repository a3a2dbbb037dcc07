//! The clock that programs are timed by, against the CPU's own counter.

use anyhow::{Context, Result};
use bpfcost_bpf::{ladder::Ladder, time_counter, timing::Loop};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ClockReading {
    /// The clock that programs read, in nanoseconds.
    pub(super) kernel_ns: f64,
    /// The CPU's counter.
    pub(super) counter: f64,
}

/// Reads both, as close together as a program can be started.
pub(super) fn read(cpu: u32) -> Result<ClockReading> {
    let mut ladder = Ladder::load(&[0], Loop::probe()?)?;
    let mut best: Option<(u64, ClockReading)> = None;
    for _ in 0..5 {
        let before = time_counter();
        let seen = ladder.batch(0, 16, cpu, false)?;
        let after = time_counter();
        let seen = seen.context("the rung is not loaded")?;
        let reading = ClockReading {
            kernel_ns: seen.start_ns as f64,
            counter: before as f64,
        };
        if best.is_none_or(|(took, _)| after - before < took) {
            best = Some((after - before, reading));
        }
    }
    Ok(best.context("no reading")?.1)
}

/// By what share the rate of one clock against the other differs between the first half of the readings and the
/// second; `None` with fewer than three, or where a clock did not move.
pub(super) fn drift(readings: &[ClockReading]) -> Option<f64> {
    let rate = |part: &[ClockReading]| {
        let (first, last) = (part.first()?, part.last()?);
        let rate = (last.kernel_ns - first.kernel_ns) / (last.counter - first.counter);
        (rate.is_finite() && rate > 0.0).then_some(rate)
    };
    let middle = readings.len() / 2;
    Some(rate(readings.get(middle..)?)? / rate(readings.get(..=middle)?)? - 1.0)
}
