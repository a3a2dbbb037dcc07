//! The cost of `bpf_stats`, and what it counts for an empty program: measured with a program that does nothing, run
//! with `bpf_stats` off and on.

use std::{thread::sleep, time::Duration};

use bpfcost_bpf::{
    idle::{Idle, IdleRuns},
    stats::StatsOn,
};
use serde::{Deserialize, Serialize};

/// Runs in one system call: enough that it costs next to nothing a run.
const RUNS: u32 = 1000;
/// Such calls, of which the median counts: interrupts strike fewer than half.
const CALLS: usize = 51;
/// Between two of them, so that who shares the core for a moment does not strike half of them.
const PAUSE: Duration = Duration::from_millis(1);

/// Effect of the account on numbers, and on programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatsOverhead {
    /// Nanoseconds per run in the account that are not the program's: the figure for an empty program.
    pub(crate) inside_ns: f64,
    /// Nanoseconds that keeping the account adds to a run. Absent where it was already kept, so that there was
    /// nothing to compare with.
    pub(crate) whole_ns: Option<f64>,
}

/// Switches the account on, and measures what that does.
pub(super) fn measured() -> bpfcost_bpf::Result<(StatsOn, StatsOverhead)> {
    let idle = Idle::load()?;
    let off = calls(&idle)?;
    let on = StatsOn::start()?;
    let counted = calls(&idle)?;
    let each = |ran: &IdleRuns| ran.elapsed.as_nanos() as f64 / f64::from(RUNS);
    // Another process keeps the account, by a descriptor or for all (kernel.bpf_stats_enabled).
    let kept = off.iter().any(|ran| ran.stats.run_cnt > 0);
    let tax = StatsOverhead {
        inside_ns: median(
            counted
                .iter()
                .map(|ran| ran.stats.run_time_ns as f64 / ran.stats.run_cnt.max(1) as f64),
        ),
        whole_ns: (!kept)
            .then(|| (median(counted.iter().map(each)) - median(off.iter().map(each))).max(0.0)),
    };
    Ok((on, tax))
}

fn calls(idle: &Idle) -> bpfcost_bpf::Result<Vec<IdleRuns>> {
    // The first ones find nothing in caches.
    idle.run(RUNS)?;
    let call = |_| {
        sleep(PAUSE);
        idle.run(RUNS)
    };
    (0..CALLS).map(call).collect()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
