//! Safeguards that every experiment has unless it waives them: what was timed, for the record; and the sentinel, a program
//! that stays loaded through a run. The sentinel is a rung of the ladder, because it shares no code with any case.

use anyhow::{Context, Result, ensure};
use bpfcost_bpf::{current_cpu, ladder::Ladder, timing::Loop};
use bpfcost_model::{Experiment, Sentinel, SentinelTrial, Setup, Slices};

/// The rung that serves as sentinel, and how often it runs: about 1 ms.
const SENTINEL_RUNG: u32 = 100;
const SENTINEL_OPS: u64 = 10_000;

/// Number of operations of the anchor: about 1 ms.
const ANCHOR_OPS: u64 = 40_000;

/// Returns what an experiment times and with what, for the record: by its own account, or else the build of the BPF
/// programs, `can_loop` or `bpf_loop`, and the kernel's clock or the CPU's counter. `None` if the experiment waives it.
pub fn programs(experiment: &dyn Experiment) -> Result<Option<String>> {
    if experiment.description().waivers.programs.is_some() {
        return Ok(None);
    }
    match experiment.programs()? {
        Some(own) => Ok(Some(own)),
        None => usual_programs().map(Some),
    }
}

fn usual_programs() -> Result<String> {
    let looping = Loop::probe()?;
    let name = match looping {
        Loop::CanLoop => "can_loop",
        Loop::BpfLoop => "bpf_loop",
    };
    let clock = match Ladder::load(&[0], looping)?.batch(0, 1, current_cpu(), false)? {
        Some(seen) if seen.cpu_counter => "bpf_get_cpu_time_counter",
        _ => "bpf_ktime_get_ns",
    };
    Ok(format!("build {}, {name}, {clock}", bpfcost_bpf::BUILD))
}

/// Loads the usual sentinel.
pub fn sentinel(setup: &Setup) -> Result<Box<dyn Sentinel>> {
    let cpu = *setup.cpus.first().context("no CPU was chosen")?;
    let ladder = Ladder::with_anchor(SENTINEL_RUNG, Loop::probe()?)?;
    Ok(Box::new(Rung { ladder, cpu }))
}

struct Rung {
    ladder: Ladder,
    cpu: u32,
}

impl Sentinel for Rung {
    fn trial(&mut self) -> Result<SentinelTrial> {
        let seen = self
            .ladder
            .batch(SENTINEL_RUNG, SENTINEL_OPS, self.cpu, false)?;
        let seen = seen.context("the sentinel is not loaded")?;
        ensure!(
            seen.ops == SENTINEL_OPS && seen.end_ns > seen.start_ns,
            "the sentinel failed its check: {} of {SENTINEL_OPS} operations in {} ns",
            seen.ops,
            seen.elapsed_ns()
        );
        let anchor = self.ladder.anchor(ANCHOR_OPS, self.cpu)?;
        Ok(SentinelTrial {
            value: seen.ns_per_op(),
            // An emulator may be too slow for one batch.
            anchor: if anchor.ops == ANCHOR_OPS {
                Slices::new(&anchor.slices)
            } else {
                Slices::default()
            },
        })
    }
}
