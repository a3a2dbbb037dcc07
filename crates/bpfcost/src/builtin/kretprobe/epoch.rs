//! An epoch of `kretprobe`: one program is attached at a time, only for its own trials.

use anyhow::{Context, Result};
use bpfcost_bpf::attach::{AttachMethod, Counter, CounterBody, attached_at};

use bpfcost_threads::call::CallThreads;

use super::{case::KretprobeCase, proof::KretprobeProof};
use bpfcost_model::{Batch, Case, Fault, LoadedEpoch, Problem, Setup, Trial, differs, prove};

/// Calls of each thread between attaching and the first batch that counts, at least.
const FIRST_CALLS: Batch = Batch(1);

/// Program and threads of the current case. The program is dropped first, so that no call is made while it is detached.
struct LoadedCase {
    way: KretprobeCase,
    counter: Option<Counter>,
    /// Attachments that the kernel lists for the function with only the case's own program attached.
    attached: Vec<String>,
    calls: CallThreads,
}

/// State that all cases of an epoch share.
pub(super) struct KretprobeEpoch {
    now: Option<LoadedCase>,
    cpus: Vec<u32>,
}

impl KretprobeEpoch {
    pub(super) fn load(setup: &Setup) -> Self {
        KretprobeEpoch {
            now: None,
            cpus: setup.cpus.clone(),
        }
    }

    /// Attaches what a case means, and nothing else.
    fn turn_to(&mut self, way: KretprobeCase) -> Result<&mut LoadedCase, Fault> {
        let there = self.now.take().filter(|now| now.way == way);
        let now = match there {
            Some(now) => now,
            None => {
                let function = way.call.function();
                nobody_but(&[], function)?;
                let calls = CallThreads::open(way.call, way.threads, &self.cpus)?;
                let method = way.probe.method(self.cpus.len());
                let counter = method.map(|method| counting(method, function));
                let counter = counter
                    .transpose()
                    .map_err(|error| refused("attached", &error))?;
                let before = counter.as_ref().map(|_| attached(function)).transpose()?;
                calls.make(way.call.whole(FIRST_CALLS))?;
                LoadedCase {
                    way,
                    counter,
                    attached: before.unwrap_or_default(),
                    calls,
                }
            }
        };
        Ok(self.now.insert(now))
    }
}

/// A counter of calls that is attached.
fn counting(method: AttachMethod, function: &str) -> bpfcost_bpf::Result<Counter> {
    let mut counter = Counter::load(method, function, CounterBody::Calls)?;
    counter.attach()?;
    Ok(counter)
}

/// The function to which no other process may be attached.
const ALONE: &str = "nothing else attached";

fn attached(function: &str) -> Result<Vec<String>, Fault> {
    attached_at(function).map_err(|error| refused(ALONE, &error))
}

/// Checks that no other process is attached to the function: it would be part of every cost. Called again and again, for
/// another one may attach meanwhile.
fn nobody_but(expected: &[String], function: &str) -> Result<(), Fault> {
    prove(stranger(expected, &attached(function)?))
}

fn stranger(expected: &[String], there: &[String]) -> Option<Problem> {
    let words = |who: &[String]| match who {
        [] => "no other program".to_owned(),
        who => who.join("; "),
    };
    differs(
        ALONE,
        words(expected),
        words(there),
        "other programs see the same calls; every cost would include them",
    )
}

/// Fault of a case that the kernel rejected although it has what the case needs.
fn refused(check: &str, error: &bpfcost_bpf::Error) -> Fault {
    Fault::Invalid(Problem {
        check: check.to_owned(),
        expected: "no error".to_owned(),
        got: error.to_string(),
        detail: String::new(),
    })
}

impl LoadedEpoch for KretprobeEpoch {
    /// Nothing: each trial attaches what it is about, and proves itself.
    fn prepare(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let way = KretprobeCase::from_case(case)
            .with_context(|| format!("kretprobe has no case {}", case.name))?;
        let batch = way.call.whole(batch);
        let now = self.turn_to(way)?;
        let mut counted = || now.counter.as_mut().map(Counter::counted).transpose();
        let before = counted()?;
        let made = now.calls.make(batch)?;
        let counted = before
            .zip(counted()?)
            .map(|(before, after)| after.since(before));
        nobody_but(&now.attached, way.call.function())?;
        let proof = KretprobeProof {
            call: way.call,
            threads: way.threads,
            made,
            probed: now.counter.as_ref().map(Counter::method).zip(counted),
        };
        prove(proof.problem(batch))?;
        Ok(proof.trial(batch))
    }

    fn unload(mut self: Box<Self>) -> Result<()> {
        self.now = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_later_is_told_from_ones_own() {
        let own = ["a kprobe at f+0x4".to_owned()];
        let both = [own.clone(), own.clone()].concat();
        assert_eq!(stranger(&[], &[]), None);
        assert_eq!(stranger(&own, &own), None);
        let found = stranger(&own, &both).expect("a problem");
        assert_eq!(found.got, "a kprobe at f+0x4; a kprobe at f+0x4");
        assert_eq!(
            stranger(&[], &own).expect("a problem").expected,
            "no other program"
        );
    }
}
