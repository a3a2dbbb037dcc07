//! Batches of two lengths, timed by their program and from outside; and slices so short that their clock reads show.

use anyhow::{Context, Result};
use bpfcost_bpf::{
    OutsideTime,
    ladder::Ladder,
    timing::{Loop, SLICES},
};
use bpfcost_stats::sample::median;

/// The rung that is timed, and about what it takes.
const RUNG: u32 = 100;
const RUNG_NS: f64 = 100.0;
/// Batches of each length.
const BATCHES: usize = 20;
/// What the shorter ones should take, in nanoseconds: the longer ones take as long as a batch of a run.
const BATCH_NS: f64 = 5e6;
/// The rung of short slices, and their operations: a read of the clock is about a quarter of one.
const SLICED_RUNG: u32 = 10;
const SHORT_SLICE: u64 = 8;
/// Operations of long slices, of which a read is a hundredth.
const LONG_SLICE: u64 = 256;

/// A batch, timed twice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BatchReading {
    /// Whether it has twice the operations of the others.
    pub(super) twice: bool,
    /// Nanoseconds by the clock of its program.
    pub(super) inside_ns: u64,
    /// The same from outside.
    pub(super) outside: OutsideTime,
}

/// A batch in short slices, with what its clock reads cost subtracted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SliceReading {
    /// Operations of a slice.
    pub(super) ops: u64,
    /// Nanoseconds per operation in the middle slice.
    pub(super) slice_ns: f64,
    /// The same over the whole batch.
    pub(super) batch_ns: f64,
    /// The same in slices so long that reads do not matter.
    pub(super) long_ns: f64,
    /// What was subtracted for a read, in nanoseconds.
    pub(super) read_ns: f64,
}

/// Reads batches, in turn of one length and the other.
pub(super) fn read(cpu: u32) -> Result<Vec<BatchReading>> {
    let mut ladder = Ladder::load(&[RUNG], Loop::probe()?)?;
    let ops = (BATCH_NS / RUNG_NS) as u64;
    let mut readings = Vec::new();
    for number in 0..2 * BATCHES {
        let twice = number % 2 == 1;
        let seen = ladder.batch(RUNG, if twice { 2 * ops } else { ops }, cpu, false)?;
        let seen = seen.context("the rung is not loaded")?;
        readings.push(BatchReading {
            twice,
            inside_ns: seen.inside_ns(),
            outside: seen.outside,
        });
    }
    Ok(readings)
}

/// Reads batches in short slices; none if this kernel's loop does not cut a batch.
pub(super) fn read_slices(cpu: u32) -> Result<Vec<SliceReading>> {
    let mut ladder = Ladder::load(&[SLICED_RUNG], Loop::probe()?)?;
    let mut readings = Vec::new();
    for _ in 0..BATCHES {
        let mut batch = |slice: u64| {
            let seen = ladder.batch(SLICED_RUNG, slice * SLICES, cpu, false)?;
            seen.context("the rung is not loaded")
        };
        let long = batch(LONG_SLICE)?;
        let short = batch(SHORT_SLICE)?;
        // A clock that is too coarse for slices shows no cost of a read either.
        if let Some(slice_ns) = median(&short.slices).filter(|_| short.clock_ns > 0) {
            readings.push(SliceReading {
                ops: SHORT_SLICE,
                slice_ns,
                batch_ns: short.ns_per_op(),
                long_ns: median(&long.slices).unwrap_or(slice_ns),
                read_ns: short.clock_ns as f64,
            });
        }
    }
    Ok(readings)
}
