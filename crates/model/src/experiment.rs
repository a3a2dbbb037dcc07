//! The traits and types of an experiment: a named question, its cases, and how one trial of a case is run. The
//! engine knows only these types.

use anyhow::{Result, bail};

use crate::{Case, Description, LoadedEpoch, Need, Pair, Sentinel};

/// A named question: its cases, what they are compared with, and how they are loaded.
///
/// Description, cases, pairs and needs are pure, so that `list` and `--dry-run` need no privilege. The kernel is
/// asked by [`unsupported`](Experiment::unsupported), [`programs`](Experiment::programs),
/// [`load`](Experiment::load) and [`sentinel`](Experiment::sentinel).
pub trait Experiment {
    /// Describes the experiment, without side effects.
    fn description(&self) -> Description;

    /// Every case, floors included, in the order in which tables show them.
    fn cases(&self) -> Vec<Case>;

    /// The comparisons that this experiment answers. A pair one of whose cases is not part of a run is dropped.
    fn pairs(&self) -> Vec<Pair>;

    /// Takes the CPUs of a run, which its cases may depend on.
    fn on_cpus(&mut self, _cpus: &[u32]) {}

    /// Gives a factor other values than it has by default, as `--set` has them: between commas.
    fn set(&mut self, _factor: &str, _values: &str) -> Result<()> {
        let name = self.description().name;
        bail!(
            "{name} has no factor that can be set\n  See its cases and factors: bpfcost list {name}"
        )
    }

    /// The kernel features that a case needs, the most telling first. A case that lacks one is `unsupported`, and the
    /// first that is missing is the reason.
    fn needs(&self, _case: &Case) -> Vec<Need> {
        Vec::new()
    }

    /// Returns why a case can't run here and what to do about it, or `None` if it can. Follows from
    /// [`needs`](Experiment::needs), which is what experiments declare; tests of the engine script it.
    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        self.missing(&self.needs(case))
    }

    /// The first of these that the kernel lacks, and what to do about it.
    fn missing(&self, needs: &[Need]) -> Result<Option<String>> {
        let counted = self.description().counts;
        for need in needs {
            if let Some(missing) = need.missing(counted)? {
                return Ok(Some(missing));
            }
        }
        Ok(None)
    }

    /// The timed programs, as far as they can differ between builds and kernels: part of the record. `None` for what is
    /// usual, which the caller of the engine knows: the build of the BPF programs, their loop and their clock. An
    /// experiment gives it up with [`Waivers::programs`](crate::Waivers::programs).
    fn programs(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Opens an epoch: programs, maps and servers made afresh for `setup.cases`.
    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>>;

    /// A program of its own that stays loaded through the whole run, to separate drift from the luck of a load. `None`
    /// for the usual one, which the engine is given. An experiment gives it up with
    /// [`Waivers::sentinel`](crate::Waivers::sentinel).
    fn sentinel(&self, _setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        Ok(None)
    }
}

/// The inputs of a load: the cases of an epoch, their CPUs and their seed.
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
    /// True if costs are counted in instructions. Nothing may then be left to chance, because counts would show it:
    /// hash seeds are zero, trials of a case repeat the same sequence, and a trial is the batch alone, without one in
    /// which the reset is done twice.
    pub exact: bool,
}
