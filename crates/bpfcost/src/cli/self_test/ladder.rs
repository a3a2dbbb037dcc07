//! The ladder: programs with a known number of added instructions.

use std::fmt;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    ladder::{Ladder, RUNGS},
    timing::Loop,
};
use bpfcost_stats::sample::median;

/// Loads; each rung counts with the median over them.
const LOADS: usize = 7;
/// What a rung's batch should take, in nanoseconds.
const RUNG_NS: f64 = 2e6;
/// A guess of a rung's cost: the loop, and three or four cycles a multiplication.
const LOOP_NS: f64 = 2.0;
const INSTRUCTION_NS: f64 = 1.2;
/// What each added instruction multiplies by (`ladder.bpf.c`).
const FACTOR: u64 = 5;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct LadderReading {
    /// Instructions added.
    pub(super) rung: u32,
    /// Nanoseconds per operation, the median over loads.
    pub(super) cost: f64,
    /// Loads after which the product of all multiplications was not what so many operations make.
    pub(super) wrong: usize,
}

impl fmt::Display for LadderReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LadderReading { rung, cost, .. } = self;
        write!(f, "ladder: {rung:5} added instructions {cost:9.2} ns/op")
    }
}

pub(super) fn read(cpu: u32) -> Result<Vec<LadderReading>> {
    let mut costs = vec![Vec::new(); RUNGS.len()];
    let mut wrong = vec![0; RUNGS.len()];
    for _ in 0..LOADS {
        let mut ladder = Ladder::load(&RUNGS, Loop::probe()?)?;
        for (index, rung) in RUNGS.into_iter().enumerate() {
            let expected_ns = LOOP_NS + f64::from(rung) * INSTRUCTION_NS;
            let ops = (RUNG_NS / expected_ns) as u64;
            let before = ladder.product()?;
            let seen = ladder
                .batch(rung, ops, cpu, false)?
                .context("the rung is not loaded")?;
            anyhow::ensure!(
                seen.end_ns > seen.start_ns,
                "the clock does not move: {seen:?}"
            );
            let right = product(before, rung, ops);
            wrong[index] += usize::from(seen.ops != ops || ladder.product()? != right);
            costs[index].push(seen.ns_per_op());
        }
    }
    let readings = RUNGS.into_iter().zip(costs).zip(wrong);
    readings
        .map(|((rung, costs), wrong)| {
            Ok(LadderReading {
                rung,
                cost: median(&costs).context("no cost")?,
                wrong,
            })
        })
        .collect()
}

/// What the product becomes by so many operations of a rung.
pub(super) fn product(before: u64, rung: u32, ops: u64) -> u64 {
    let mut power = FACTOR;
    let mut left = u64::from(rung) * ops;
    let mut product = before;
    while left > 0 {
        if left & 1 == 1 {
            product = product.wrapping_mul(power);
        }
        power = power.wrapping_mul(power);
        left >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_product_is_that_of_each_multiplication() {
        let slow = |before: u64, times: u64| (0..times).fold(before, |p, _| p.wrapping_mul(5));
        for (rung, ops) in [(0, 9), (1, 1), (10, 7), (100, 13)] {
            assert_eq!(product(3, rung, ops), slow(3, u64::from(rung) * ops));
        }
        assert_ne!(product(3, 10, 1000), product(3, 10, 999));
    }
}
