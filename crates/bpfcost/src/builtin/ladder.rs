//! `ladder`: is a known cost measured correctly? Bodies with 0 to 1010 added instructions. Each is a multiplication
//! that needs the result of the one before, so no CPU can skip or overlap them.
//!
//! Where instructions are counted, a rung must count exactly the added instructions more than the lowest rung. One
//! rung is the sentinel of other experiments' runs, because it shares no code with any case.

use super::needs::needs;
use bpfcost_model::Need;
use std::{collections::BTreeMap, slice};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    CpuPin, Feature, current_cpu,
    ladder::{Ladder, RUNGS},
    timing::{Loop, Observation},
};

use super::batch;
use bpfcost_model::{
    Batch, Case, Description, Experiment, Fault, LoadedEpoch, Overhead, Pair, Problem, Role,
    Sentinel, SentinelTrial, Setup, Sizing, Slices, Trial, differs, prove,
};

/// The rung that serves as sentinel, and how often it runs: about 1 ms.
const SENTINEL_RUNG: u32 = 100;
const SENTINEL_OPS: u64 = 10_000;

/// How often the anchor runs: about 1 ms.
const ANCHOR_OPS: u64 = 40_000;

/// What the timed loop may run at most: half of the 2²³ turns that `can_loop` grants a program on kernels
/// before 6.15.
const MOST_OPS: u64 = 1 << 22;

/// `XDP_PASS`, which a rung returns where its product is odd, and it always is.
const PASS: u32 = 2;

/// The experiment.
#[derive(Debug, Default)]
pub struct KnownAnswers;

impl Experiment for KnownAnswers {
    fn description(&self) -> Description {
        Description {
            most_cpus: Some(1),
            overhead: Overhead {
                load_s: 0.01,
                trial_s: 0.0005,
                batches: 1.0,
            },
            ..Description::new(
                "ladder",
                "known answers: bodies with 0 to 1010 added instructions",
                &[("added", "instructions in the body, each a multiplication")],
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        RUNGS.map(case).into()
    }

    fn pairs(&self) -> Vec<Pair> {
        let rungs = RUNGS.windows(2);
        rungs
            .map(|rungs| Pair {
                case: name(rungs[1]),
                baseline: name(rungs[0]),
                about: format!("{} more", rungs[1] - rungs[0]),
            })
            .collect()
    }

    fn needs(&self, _case: &Case) -> Vec<Need> {
        // can_loop where there is one, and this where not.
        needs([Feature::Btf, Feature::XdpTestRun, Feature::BpfLoop])
    }

    fn programs(&self) -> Result<Option<String>> {
        programs(Loop::probe()?).map(Some)
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let [cpu] = setup.cpus[..] else {
            anyhow::bail!("the ladder runs on one CPU at a time: give one with --cpus");
        };
        let rungs: Vec<u32> = setup.cases.iter().filter_map(added).collect();
        Ok(Box::new(Rungs {
            ladder: Ladder::load(&rungs, Loop::probe()?)?,
            cpu,
            exact: setup.exact,
            _pinned: CpuPin::to(cpu)?,
        }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        sentinel(setup)
    }
}

/// What is timed with which loop and clock, for the record: the build of the programs, `can_loop` or
/// `bpf_loop`, the kernel's clock or the CPU's counter.
pub(super) fn programs(looping: Loop) -> Result<String> {
    let name = match looping {
        Loop::CanLoop => "can_loop",
        Loop::BpfLoop => "bpf_loop",
    };
    let clock = match Ladder::load(&[0], Loop::probe()?)?.batch(0, 1, current_cpu(), false)? {
        Some(seen) if seen.cpu_counter => "bpf_get_cpu_time_counter",
        _ => "bpf_ktime_get_ns",
    };
    Ok(format!("build {}, {name}, {clock}", bpfcost_bpf::BUILD))
}

/// A rung that stays loaded through a run.
pub(super) fn sentinel(setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
    let cpu = *setup.cpus.first().context("no CPU was chosen")?;
    let ladder = Ladder::with_anchor(SENTINEL_RUNG, Loop::probe()?)?;
    Ok(Some(Box::new(Rung { ladder, cpu })))
}

fn name(added: u32) -> String {
    format!("added-{added}")
}

/// How many instructions a case adds.
fn added(case: &Case) -> Option<u32> {
    case.name.strip_prefix("added-")?.parse().ok()
}

fn case(added: u32) -> Case {
    Case {
        name: name(added),
        group: "ladder".into(),
        factors: BTreeMap::from([("added".into(), added.to_string())]),
        about: match added {
            0 => "the loop, the call, and a load and a store".into(),
            1 => "the same, and a multiplication".into(),
            more => format!("the same, and {more} multiplications"),
        },
        role: Role::Case,
        floor: None,
        sizing: Sizing::Calibrated {
            most: Some(MOST_OPS),
        },
        ..Case::default()
    }
}

/// Rungs, loaded.
struct Rungs {
    ladder: Ladder,
    cpu: u32,
    exact: bool,
    _pinned: CpuPin,
}

impl LoadedEpoch for Rungs {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        self.trial(case, Batch(16)).map(drop)
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let added = added(case).with_context(|| format!("the ladder has no case {}", case.name))?;
        let before = self.ladder.product()?;
        let seen = self
            .ladder
            .batch(added, batch.0, self.cpu, self.exact)?
            .with_context(|| format!("{} is not loaded", case.name))?;
        let product = expected(before, u64::from(added) * batch.0)?;
        let got = self.ladder.product()?;
        prove(problem(&seen, batch, product, got))?;
        Ok(batch::trial(&[seen], batch))
    }

    fn unload(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// The product after so many multiplications by 5.
fn expected(product: u64, multiplications: u64) -> Result<u64> {
    let times = u32::try_from(multiplications).context("a batch of the ladder is too large")?;
    Ok(product.wrapping_mul(5u64.wrapping_pow(times)))
}

/// What is wrong with a batch, if anything is.
fn problem(seen: &Observation, batch: Batch, product: u64, got: u64) -> Option<Problem> {
    let detail = "the batch did not do its operations";
    batch::problem(&[seen.cpu], slice::from_ref(seen), batch.0)
        .or_else(|| differs("product", product, got, detail))
        .or_else(|| differs("return code", PASS, seen.code, detail))
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
        anyhow::ensure!(
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

#[cfg(test)]
mod tests {
    use crate::builtin::batch::proved;

    use super::*;

    #[test]
    fn a_batch_must_prove_itself() {
        let seen = proved(16, PASS, Vec::new());
        let check = |seen: &Observation, product: u64| {
            problem(seen, Batch(16), 75, product).map(|problem| problem.check)
        };
        assert_eq!(check(&seen, 75), None);
        assert_eq!(check(&seen, 15).as_deref(), Some("product"));
        let with = |change: fn(&mut Observation)| {
            let mut seen = seen.clone();
            change(&mut seen);
            seen
        };
        let name = |seen: &Observation| check(seen, 75).unwrap();
        assert_eq!(name(&with(|seen| seen.ops = 15)), "operations");
        assert_eq!(name(&with(|seen| seen.code = 1)), "return code");
        assert_eq!(name(&with(|seen| seen.end_ns = 10)), "clock");
        // A nanosecond more than around it.
        let too_long = with(|seen| seen.end_ns += 1);
        assert_eq!(name(&too_long), "time from outside");
        let in_order = with(|seen| seen.edges_in_order = false);
        assert_eq!(name(&in_order), "slices in order");
    }
}
