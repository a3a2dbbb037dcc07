//! What an experiment is: a named question with its cases, and the way to run one trial of a case. The
//! engine knows these types alone; the experiments themselves are in [`builtin`](crate::builtin).

mod case;
mod remedy;
mod trial;
mod unit;

use std::rc::Rc;

use anyhow::{Result, bail};
use bpfcost_bpf::Feature;

use crate::workload::{Definition, outside::Outside};

pub(crate) use crate::fault::differs;
pub use crate::fault::{ENDED, Fault, LET_GO, Problem};
pub use case::{Batch, Case, Grid, Metric, Pair, Role, Scaling, Sizing};
pub use trial::{Loaded, Sentinel, Trial};
pub use unit::Unit;

/// What the epochs of a case scatter by on a shared virtual machine.
const TYPICAL_SPREAD: f64 = 0.01;

/// A named question: its cases, what they are compared with, and how they are loaded.
///
/// Everything that `list` and `--dry-run` ask is pure, so that they need no privilege: names, cases, pairs,
/// needs, overhead. The kernel is asked by [`unsupported`](Experiment::unsupported),
/// [`programs`](Experiment::programs), [`load`](Experiment::load) and [`sentinel`](Experiment::sentinel).
pub trait Experiment {
    /// The name on the command line, e.g. `xdp-lb`.
    fn name(&self) -> &str;

    /// The question in one line, for `bpfcost list`.
    fn about(&self) -> &str;

    /// What a trial's value is counted in.
    fn unit(&self) -> Unit;

    /// The relative difference below which two cases count as the same (METHODOLOGY: 0.01 for
    /// kernel costs).
    fn margin(&self) -> f64 {
        0.01
    }

    /// What the epochs of a case typically scatter by (relative standard deviation): for forecasts alone.
    fn spread(&self) -> f64 {
        TYPICAL_SPREAD
    }

    /// Factor names and what each of them means, for `bpfcost list EXPERIMENT`.
    fn factors(&self) -> Vec<(&str, &str)>;

    /// The two factors whose values are best seen as rows and columns of one table, where there are such.
    fn grid(&self) -> Option<Grid> {
        None
    }

    /// How cases make curves over a number of threads or CPUs, where they do.
    fn scaling(&self) -> Option<Scaling> {
        None
    }

    /// Further values of its trials that are compared as the main one is.
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    /// The factor whose values are run next to each other in a round, where the others make a difference that
    /// takes time to settle: a probe goes on and off while the size of a request stays.
    fn adjacent(&self) -> Option<&str> {
        None
    }

    /// How many rounds an epoch has, where that is not left to the engine.
    fn rounds(&self) -> Option<u32> {
        None
    }

    /// Whether a case is among those that `--quick` takes, where none are named.
    fn quick(&self, _case: &Case) -> bool {
        true
    }

    /// What runs, where that is told by no name: the workload of `run --with`.
    fn definition(&self) -> Option<&Definition> {
        None
    }

    /// Whether it takes the privilege to load BPF programs.
    fn privileged(&self) -> bool {
        true
    }

    /// Whether its question is how CPUs get on with each other. Then it runs on all that it may where none are
    /// named, and on no target that has one alone.
    fn every_cpu(&self) -> bool {
        false
    }

    /// Whether it can run where instructions are counted, on one CPU whose clock leaps while it waits.
    fn counts(&self) -> bool {
        !self.every_cpu()
    }

    /// Takes the CPUs of a run, which its cases may depend on.
    fn on_cpus(&mut self, _cpus: &[u32]) {}

    /// Takes who makes load that comes from outside of this guest. Without one, cases that need it can't run.
    fn take_outside(&mut self, _outside: Rc<dyn Outside>) {}

    /// Gives a factor other values than it has by default, as `--set` has them: between commas.
    fn set(&mut self, _factor: &str, _values: &str) -> Result<()> {
        bail!(
            "{} has no factor that can be set\n  Pick among its cases with --case; see: bpfcost list {}",
            self.name(),
            self.name()
        )
    }

    /// Whether costs come from CPUs that fight for cache lines. An emulated machine has none, so that its
    /// times of such cases tell nothing, not even which of two is dearer.
    fn contends(&self) -> bool {
        false
    }

    /// Every case, floors included, in the order in which tables show them.
    fn cases(&self) -> Vec<Case>;

    /// The comparisons that this experiment answers. A pair one of whose cases is not part of a
    /// run is dropped.
    fn pairs(&self) -> Vec<Pair>;

    /// What the kernel must have for a case, what tells most of it first. A case that lacks something is
    /// `unsupported`, and the first that is missing is the reason.
    fn needs(&self, _case: &Case) -> Vec<Feature> {
        Vec::new()
    }

    /// Why a case can't run here, and what to do about it; `None` where it can. Follows from
    /// [`needs`](Experiment::needs), which is what experiments declare; tests of the engine script it.
    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        missing(&self.needs(case))
    }

    /// How many CPUs a case runs on at once, of its own accord. An exact target has one.
    fn cpus(&self, _case: &Case) -> u32 {
        1
    }

    /// The most CPUs that a case can be asked to run on at once with `--cpus`; `None` where there is no limit.
    fn most_cpus(&self) -> Option<usize> {
        None
    }

    /// How long a batch of a case is to be, in nanoseconds, where others of the run have `usual_ns`.
    fn batch_ns(&self, _case: &Case, usual_ns: f64) -> f64 {
        usual_ns
    }

    /// What loads and trials take beside the batch itself: for the estimate of `--dry-run` alone.
    fn overhead(&self) -> Overhead;

    /// What is timed and with what, where that can differ between builds and kernels: the build of the
    /// programs, their loop and their clock. Part of the record.
    fn programs(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Opens an epoch: programs, maps and servers made afresh for `setup.cases`.
    fn load(&self, setup: &Setup) -> Result<Box<dyn Loaded>>;

    /// The program that stays loaded through the whole run, to tell drift from the luck of a load.
    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>>;
}

/// The first of these that the kernel lacks, and what to do about it.
pub(crate) fn missing(needs: &[Feature]) -> Result<Option<String>> {
    for feature in needs {
        if let Some(missing) = feature.missing()? {
            return Ok(Some(remedy::with_remedy(&missing)));
        }
    }
    Ok(None)
}

/// What loads and trials take beside the batch itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Seconds of a load, preparation and unload included.
    pub load_s: f64,
    /// Seconds of a trial beside its batches.
    pub trial_s: f64,
    /// Batches in a trial: the timed one, and those around it.
    pub batches: f64,
}

/// What an epoch is loaded for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cases that will run, floors included.
    pub cases: Vec<Case>,
    /// The CPUs that run each case at once; never empty.
    pub cpus: Vec<u32>,
    /// The run's recorded seed: the same seed gives the same sequences of packets.
    pub seed: u64,
    /// The number of the epoch, so that no two of them see the same sequences.
    pub epoch: usize,
    /// Whether costs are counted in instructions: then nothing may be left to chance, for it would be
    /// seen. Hash seeds are zero, trials of a case repeat the same sequence, and a trial is the batch
    /// alone, without one in which the reset is done twice.
    pub exact: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::{ladder, twice};

    /// One case, with these needs.
    struct Needs(Vec<Feature>);

    impl Experiment for Needs {
        fn name(&self) -> &str {
            "needs"
        }

        fn about(&self) -> &str {
            ""
        }

        fn unit(&self) -> Unit {
            Unit::NanosPerOp
        }

        fn factors(&self) -> Vec<(&str, &str)> {
            Vec::new()
        }

        fn cases(&self) -> Vec<Case> {
            let mut cases = ladder::KnownAnswers.cases();
            cases.truncate(1);
            cases
        }

        fn pairs(&self) -> Vec<Pair> {
            Vec::new()
        }

        fn needs(&self, _case: &Case) -> Vec<Feature> {
            self.0.clone()
        }

        fn overhead(&self) -> Overhead {
            ladder::KnownAnswers.overhead()
        }

        fn load(&self, _setup: &Setup) -> Result<Box<dyn Loaded>> {
            anyhow::bail!("nothing to load")
        }

        fn sentinel(&self, _setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
            Ok(None)
        }
    }

    fn unsupported(needs: &[Feature]) -> Option<String> {
        let experiment = Needs(needs.to_vec());
        experiment.unsupported(&experiment.cases()[0]).unwrap()
    }

    /// Whatever machine this is, with whatever privilege: each feature decides alone, and of two that are
    /// missing the first one speaks.
    #[test]
    fn the_first_need_that_is_missing_is_the_reason() {
        assert_eq!(unsupported(&[]), None);
        let (missing, there): (Vec<_>, Vec<_>) = Feature::ALL
            .into_iter()
            .partition(|feature| feature.missing().unwrap().is_some());
        assert_eq!(unsupported(&there), None);
        for &feature in &missing {
            let words = feature.missing().unwrap().unwrap().to_string();
            let before = [&there[..], &[feature], &missing[..]].concat();
            let reason = unsupported(&before).unwrap();
            assert!(reason.starts_with(&words), "{reason}");
        }
    }

    #[test]
    fn cases_entered_twice_need_what_they_need_once() {
        let twice = twice::Twice::of(Box::new(Needs(vec![Feature::Lsm])), &["added-0"]);
        for case in twice.cases() {
            assert_eq!(twice.needs(&case), [Feature::Lsm], "{}", case.name);
        }
        assert_eq!(twice.cases().len(), 2);
    }
}
