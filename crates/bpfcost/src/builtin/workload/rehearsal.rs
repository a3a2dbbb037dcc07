//! Rehearsals of probes that do not count their hits: windows whose costs are not used. The kernel counts the runs of the
//! probe's programs (`bpf_stats`), before the measured windows of an epoch and after them. Counting costs time, so in the
//! measured windows the probe's programs, attachments and maps are compared with the rehearsal's instead.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    loaded_programs,
    stats::{RunStats, StatsOn},
};

use bpfcost_model::{Fault, Problem};
use bpfcost_probe::{ExpectedParts, Inventory, Probe};
use bpfcost_process::{RunContext, wait_for};
use bpfcost_workload::LoadResult;

/// Makes the load of a window, or watches the load of others.
pub(super) type LoadMaker<'a> = &'a mut dyn FnMut(&RunContext) -> Result<LoadResult, Fault>;

/// Maximum time from a probe's readiness until it has all the parts that it had in the rehearsal.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Runs of all programs from which some must run again in the second count: 0 of as many is no chance.
const SOME: u64 = 20;
/// Runs of one program from which it must run again.
const OFTEN: u64 = 100;
/// Runs per operation that count as far fewer, as a share. The kernel counts on the whole machine: what other processes do
/// may differ a hundredfold between the two counts.
const FAR_FEWER: f64 = 1e-3;

/// The result of a probe's rehearsal.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rehearsal {
    /// Time that attaching took.
    pub(super) attach: Duration,
    /// Runs of its programs; `None` if it has no programs, or counts its hits itself.
    counted: Option<RunCounts>,
    /// Parts of the probe that the kernel must list again.
    expected: ExpectedParts,
    /// True if the kernel lists no attachment of the probe's programs.
    pub(super) is_unseen: bool,
}

/// Runs of programs in a window.
#[derive(Clone, Debug, Default, PartialEq)]
struct RunCounts {
    /// Runs by the program's type and name. Program ids do not serve: they change when a tool is started again.
    runs: BTreeMap<String, u64>,
    ops: f64,
}

impl Rehearsal {
    /// Attaches a probe for one window. A probe that never fires makes the case invalid.
    pub(super) fn new(
        context: &RunContext,
        make: LoadMaker<'_>,
        probe: &mut dyn Probe,
    ) -> Result<Self, Fault> {
        let begun = Instant::now();
        probe.attach(context)?;
        let attach = begun.elapsed();
        let mut inside = |probe: &dyn Probe| {
            let begin = Inventory::of_probe(probe);
            let counted =
                RunCounts::count(&context.with_tool(probe.pids()), make, &probe.programs())?;
            let end = Inventory::of_probe(probe);
            if counted.as_ref().is_some_and(|counted| counted.sum() == 0) {
                return Err(silent());
            }
            Ok(Rehearsal {
                attach,
                counted,
                expected: ExpectedParts::new(&begin, &end),
                is_unseen: end.is_unseen(),
            })
        };
        let rehearsed = inside(probe);
        let rehearsed = or_detach(probe, rehearsed)?;
        probe.detach()?;
        Ok(rehearsed)
    }

    /// Runs of its programs per operation; `None` if it has no programs, or counts its hits itself.
    pub(super) fn hits_per_op(&self) -> Option<f64> {
        let counted = self.counted.as_ref()?;
        Some(counted.sum() as f64 / counted.ops)
    }

    /// Waits until an attached probe has all that it had in the rehearsal; then returns its inventory.
    pub(super) fn prove_begin(&self, probe: &dyn Probe) -> Result<Inventory, Fault> {
        let (mut inventory, mut difference) = (Inventory::default(), None);
        wait_for(&probe.pids(), ATTACH_TIMEOUT, POLL_INTERVAL, || {
            inventory = Inventory::of_probe(probe);
            difference = self.expected.difference(&inventory);
            difference.is_none()
        });
        match difference {
            None => Ok(inventory),
            Some(difference) => Err(not_as_rehearsed("at the begin of a window", difference)),
        }
    }

    /// Proves that a probe that is still attached has all that it had in the rehearsal and at the begin of the window.
    pub(super) fn prove_end(&self, probe: &dyn Probe, begin: &Inventory) -> Result<(), Fault> {
        let end = Inventory::of_probe(probe);
        let difference = self.expected.difference_since(begin, &end);
        difference.map_or(Ok(()), |difference| {
            Err(not_as_rehearsed("at the end of a window", difference))
        })
    }

    /// Counts once more, after the windows. Programs that hardly run any more make the case invalid.
    pub(super) fn repeat(
        &self,
        context: &RunContext,
        make: LoadMaker<'_>,
        probe: &mut dyn Probe,
    ) -> Result<(), Fault> {
        let Some(before) = &self.counted else {
            return Ok(());
        };
        probe.attach(context)?;
        let mut inside = |probe: &dyn Probe| {
            let begin = self.prove_begin(probe)?;
            let after =
                RunCounts::count(&context.with_tool(probe.pids()), make, &probe.programs())?;
            self.prove_end(probe, &begin)?;
            match before.lost_in(&after.unwrap_or_default()) {
                None => Ok(()),
                Some(problem) => Err(Fault::Invalid(problem)),
            }
        };
        let repeated = inside(probe);
        or_detach(probe, repeated)?;
        probe.detach()?;
        Ok(())
    }
}

/// Returns the outcome of a window with a probe that is attached, and detaches it after an error, which is returned: it came
/// first. But a probe that has ended says why it could not be proved.
pub(super) fn or_detach<T>(probe: &mut dyn Probe, outcome: Result<T, Fault>) -> Result<T, Fault> {
    let fault = match outcome {
        Ok(value) => return Ok(value),
        Err(fault) => fault,
    };
    match (fault, probe.detach()) {
        (Fault::Invalid(_), Err(ended)) => Err(ended),
        (fault, _) => Err(fault),
    }
}

/// The problem of a probe that never fired: a cost of nothing would be true and worthless.
pub(super) fn silent() -> Fault {
    Fault::Invalid(Problem {
        check: "runs of the probe".to_owned(),
        expected: "at least 1".to_owned(),
        got: "0".to_owned(),
        detail: "The probe fired 0 times: nothing was measured. Is the symbol used by this binary?"
            .to_owned(),
    })
}

/// The problem of a probe that had other parts than in its rehearsal.
fn not_as_rehearsed(when: &str, (expected, got): (String, String)) -> Fault {
    Fault::Invalid(Problem {
        check: format!("parts of the probe in the kernel {when}"),
        expected,
        got,
        detail: "The probe was not attached as in its rehearsal, in which its hits were counted: what such a \
            window costs is not the probe's cost. Does it attach each time that it is started, and stay attached?"
            .to_owned(),
    })
}

impl RunCounts {
    /// Counts runs of these programs and operations in a window; `None` if there are no programs.
    fn count(
        context: &RunContext,
        make: LoadMaker<'_>,
        programs: &[u32],
    ) -> Result<Option<Self>, Fault> {
        if programs.is_empty() {
            make(context)?;
            return Ok(None);
        }
        let _account = StatsOn::start()?;
        let names: BTreeMap<u32, String> = loaded_programs()
            .into_iter()
            .filter(|program| programs.contains(&program.id))
            .map(|program| (program.id, format!("{} ({})", program.name, program.kind)))
            .collect();
        let runs = |id: u32| RunStats::of_id(id).ok();
        let before: Vec<_> = names
            .iter()
            .map(|(id, name)| (*id, name, runs(*id)))
            .collect();
        let made = make(context)?;
        let mut counted = RunCounts {
            runs: BTreeMap::new(),
            ops: made.reading.ops(),
        };
        for (id, name, before) in before {
            // Programs that are gone by then ran only for the tool's own start.
            if let Some(after) = runs(id) {
                *counted.runs.entry(name.clone()).or_default() +=
                    after.since(before.unwrap_or_default()).run_cnt;
            }
        }
        Ok(Some(counted))
    }

    fn sum(&self) -> u64 {
        self.runs.values().sum()
    }

    /// The problem of a second count in which programs ran far less often than in this one; `None` if none did.
    fn lost_in(&self, after: &RunCounts) -> Option<Problem> {
        let share = |name: &str, runs: u64| {
            let again = after.runs.get(name).copied().unwrap_or(0) as f64;
            again / after.ops.max(f64::MIN_POSITIVE) / (runs as f64 / self.ops)
        };
        let stopped = after.sum() == 0 && self.sum() >= SOME;
        let most = self.runs.iter().max_by_key(|(_, runs)| **runs);
        let (name, runs) = self
            .runs
            .iter()
            .filter(|(_, runs)| **runs >= OFTEN)
            .find(|(name, runs)| share(name, **runs) < FAR_FEWER)
            .or(most.filter(|_| stopped))?;
        let again = after.runs.get(name).copied().unwrap_or(0);
        Some(Problem {
            check: format!("runs of {name} after the epoch's windows"),
            expected: format!("about {runs}, as before them"),
            got: again.to_string(),
            detail: "The probe fired before the measured windows, but hardly after them: whether it fired in them is \
                unknown."
                .to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ops: f64, runs: &[(&str, u64)]) -> RunCounts {
        RunCounts {
            runs: runs
                .iter()
                .map(|&(name, runs)| (name.to_owned(), runs))
                .collect(),
            ops,
        }
    }

    #[test]
    fn what_hardly_runs_any_more_is_a_problem() {
        let before = counts(100.0, &[("often", 100_000), ("seldom", 3)]);
        for (ops, often, seldom, is_lost) in [
            (100.0, 100_000, 3, false),
            // A program that runs seldom may not run.
            (100.0, 100_000, 0, false),
            // Activity of other processes makes hits too, so far fewer are no loss.
            (100.0, 200, 0, false),
            // Per operation, as often: the client did less.
            (1.0, 90, 0, false),
            (100.0, 99, 3, true),
            (100.0, 0, 3, true),
            (100.0, 0, 0, true),
        ] {
            let after = counts(ops, &[("often", often), ("seldom", seldom)]);
            let problem = before.lost_in(&after);
            assert_eq!(problem.is_some(), is_lost, "{after:?}: {problem:?}");
        }
        let some = counts(1.0, &[("more", 15), ("fewer", 5)]);
        assert_eq!(some.lost_in(&counts(1.0, &[("fewer", 1)])), None);
        let problem = some.lost_in(&RunCounts::default()).expect("none runs");
        assert_eq!(problem.got, "0");
        assert!(problem.check.contains("more"), "{problem:?}");
        // So few runs may be absent by chance.
        let few = counts(1.0, &[("seldom", 3)]);
        assert_eq!(few.lost_in(&RunCounts::default()), None);
    }
}
