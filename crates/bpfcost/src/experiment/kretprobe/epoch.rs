//! An epoch: one program attached at a time, for its trials alone.

use anyhow::{Context, Result};
use bpfcost_bpf::attach::{Tally, others_at};

use super::{call::Calls, case::Way, proof::Proof};
use crate::experiment::{Batch, Case, Fault, Loaded, Problem, Setup, Trial, differs};

/// Calls of each thread between attaching and the first batch that counts, at least.
const FIRST_CALLS: Batch = Batch(1);

/// What is there for a case. The program goes first, so that nobody calls while it goes.
struct Now {
    way: Way,
    tally: Option<Tally>,
    calls: Calls,
}

/// What all cases have in common.
pub(super) struct Epoch {
    now: Option<Now>,
    cpus: Vec<u32>,
}

impl Epoch {
    pub(super) fn load(setup: &Setup) -> Self {
        Epoch {
            now: None,
            cpus: setup.cpus.clone(),
        }
    }

    /// Attaches what a case means, and nothing else.
    fn turn_to(&mut self, way: Way) -> Result<&Now, Fault> {
        let there = self.now.take().filter(|now| now.way == way);
        let now = match there {
            Some(now) => now,
            None => {
                nobody_else(way.call.function())?;
                let calls = Calls::open(way.call, way.threads, &self.cpus)?;
                let how = way.probe.how(self.cpus.len());
                let tally = how.map(|how| Tally::attach(how, way.call.function()));
                let tally = tally.transpose().map_err(|error| unattached(&error))?;
                calls.make(way.call.whole(FIRST_CALLS))?;
                Now { way, tally, calls }
            }
        };
        Ok(self.now.insert(now))
    }
}

/// That nobody else is attached to the function: that would be part of every cost. Asked again and again, for
/// somebody may come while this goes on.
fn nobody_else(function: &str) -> Result<(), Fault> {
    let who = others_at(function).unwrap_or_else(|| "nobody".to_owned());
    differs(
        "nothing else attached",
        "nobody",
        who.as_str(),
        "others see the same calls, and would be part of every cost",
    )
    .map_or(Ok(()), |problem| Err(Fault::Invalid(problem)))
}

/// What the kernel refused, though it has what the case needs.
fn unattached(error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(Problem {
        check: "attached".to_owned(),
        expected: "no error".to_owned(),
        got: error.to_string(),
        detail: String::new(),
    })
}

impl Loaded for Epoch {
    /// Nothing: each trial attaches what it is about, and proves itself.
    fn prepare(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let way = Way::of(case).with_context(|| format!("kretprobe has no case {}", case.name))?;
        let batch = way.call.whole(batch);
        let now = self.turn_to(way)?;
        let counts = || {
            let counts = now.tally.as_ref().map(Tally::counts);
            counts.transpose().map_err(anyhow::Error::from)
        };
        let before = counts()?;
        let made = now.calls.make(batch)?;
        let counted = before
            .zip(counts()?)
            .map(|(before, after)| after.since(before));
        let proof = Proof {
            call: way.call,
            threads: way.threads,
            made,
            probed: now.tally.as_ref().map(Tally::how).zip(counted),
        };
        match proof.problem(batch) {
            Some(problem) => Err(Fault::Invalid(problem)),
            None => Ok(proof.trial(batch)),
        }
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.now = None;
        Ok(())
    }
}
