//! The sentinel: multiplications, which share nothing with any pool.

use std::{hint::black_box, time::Instant};

use anyhow::{Result, ensure};
use bpfcost_bpf::CpuPin;

use bpfcost_model::{Sentinel, SentinelTrial};

/// Multiplications that count as one operation, as the sentinel of other experiments has them.
const MULTIPLICATIONS: u32 = 100;
/// Operations of a trial: about 1 ms.
const OPS: u32 = 10_000;

/// Multiplications on one CPU.
#[derive(Debug)]
pub struct Spin {
    /// The CPU to run on.
    pub cpu: u32,
}

impl Sentinel for Spin {
    fn trial(&mut self) -> Result<SentinelTrial> {
        let _pinned = CpuPin::to(self.cpu)?;
        let begun = Instant::now();
        let mut product = black_box(3u64);
        for _ in 0..OPS * MULTIPLICATIONS {
            product = product.wrapping_mul(product);
        }
        black_box(product);
        let elapsed_ns = begun.elapsed().as_nanos() as f64;
        ensure!(
            elapsed_ns > 0.0,
            "the clock did not advance during the sentinel"
        );
        Ok(SentinelTrial {
            value: elapsed_ns / f64::from(OPS),
            ..SentinelTrial::default()
        })
    }
}
