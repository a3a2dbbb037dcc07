//! `ladder`: is a known cost measured correctly? Bodies with 0 to 1010 added instructions. Each is a multiplication
//! that needs the result of the one before, so no CPU can skip or overlap them.
//!
//! Counted instructions must match exactly: a rung counts as many more than the lowest rung as it adds. One rung is the
//! sentinel of other experiments' runs, because it shares no code with any case.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bpfcost_bpf::{
    ladder::{Ladder, RUNGS},
    timing::{Loop, Observation, Request},
};

use super::{
    needs::needs,
    timed::{self, TimedCases, TimedEpoch},
};
use bpfcost_model::{
    Case, Description, Experiment, Fault, LoadedEpoch, Need, Overhead, Pair, Problem, Role, Setup,
    Sizing, differs, prove,
};

/// Maximum operations of a batch in the timed loop: half of the 2²³ turns that `can_loop` grants a program on kernels
/// before 6.15.
const MAX_OPS: u64 = 1 << 22;

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
        needs(timed::NEEDS)
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        TimedEpoch::load(setup, || {
            let rungs: Vec<u32> = setup.cases.iter().filter_map(added).collect();
            Ok(Rungs(Ladder::load(&rungs, Loop::probe()?)?))
        })
    }
}

fn name(added: u32) -> String {
    format!("added-{added}")
}

/// Parses the number of added instructions from a case's name.
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
            most: Some(MAX_OPS),
        },
        ..Case::default()
    }
}

struct Rungs(Ladder);

/// A batch of a rung, and the product before it.
struct RungBatch {
    seen: [Observation; 1],
    before: u64,
}

impl AsRef<[Observation]> for RungBatch {
    fn as_ref(&self) -> &[Observation] {
        &self.seen
    }
}

impl TimedCases for Rungs {
    type Batch = RungBatch;

    /// A rung touches a single word.
    const WARMS_UP: bool = false;

    fn batch(&mut self, case: &Case, request: &Request<'_>) -> Result<RungBatch, Fault> {
        let added = added(case).with_context(|| format!("the ladder has no case {}", case.name))?;
        let before = self.0.product()?;
        let cpu = *request.cpus.first().context("no CPU was chosen")?;
        let seen = self.0.batch(added, request.ops, cpu, request.after_tick)?;
        let seen = seen.with_context(|| format!("{} is not loaded", case.name))?;
        Ok(RungBatch {
            seen: [seen],
            before,
        })
    }

    fn check(
        &mut self,
        case: &Case,
        request: &Request<'_>,
        batch: &RungBatch,
    ) -> Result<(), Fault> {
        let multiplications = u64::from(added(case).unwrap_or(0)) * request.ops;
        let product = expected(batch.before, multiplications)?;
        prove(problem(&batch.seen[0], product, self.0.product()?))
    }

    fn has_reset(&self, _: &Case) -> bool {
        false
    }
}

/// The product after so many multiplications by 5.
fn expected(product: u64, multiplications: u64) -> Result<u64> {
    let times = u32::try_from(multiplications).context("a batch of the ladder is too large")?;
    Ok(product.wrapping_mul(5u64.wrapping_pow(times)))
}

/// Returns the problem of a batch whose product or return code is wrong.
fn problem(seen: &Observation, product: u64, got: u64) -> Option<Problem> {
    let detail = "the batch did not do its operations";
    differs("product", product, got, detail)
        .or_else(|| differs("return code", PASS, seen.code, detail))
}

#[cfg(test)]
mod tests {
    use crate::builtin::batch::proved;

    use super::*;

    #[test]
    fn a_batch_must_prove_itself() {
        let mut seen = proved(16, PASS, Vec::new());
        let check = |seen: &Observation, product: u64| {
            problem(seen, product, 75).map(|problem| problem.check)
        };
        assert_eq!(check(&seen, 75), None);
        assert_eq!(check(&seen, 15).as_deref(), Some("product"));
        seen.code = 1;
        assert_eq!(check(&seen, 75).as_deref(), Some("return code"));
    }
}
