//! The traits and types of an experiment: a named question, its cases, and how one trial of a case is run. The
//! engine knows only these types; the experiments themselves are in [`builtin`](crate::builtin).

mod case;
mod description;
mod layout;
mod remedy;
mod slices;
mod trial;
mod unit;

use anyhow::{Result, bail};
use bpfcost_bpf::Feature;

pub use crate::fault::{ABORTED, ENDED, Fault, Problem};
pub(crate) use crate::fault::{differs, prove};
pub use case::{Batch, Case, Metric, Pair, Role, Sizing};
pub use description::{Description, Overhead, Subject};
pub use layout::{CellNote, Grid, Layout, ProbedWorkload, Scaling};
pub use slices::Slices;
pub use trial::{LoadedEpoch, Observed, Sentinel, SentinelTrial, Trial};
pub use unit::Unit;

/// A named question: its cases, what they are compared with, and how they are loaded.
///
/// Description, cases, pairs and needs are pure, so that `list` and `--dry-run` need no privilege. The kernel is
/// asked by [`unsupported`](Experiment::unsupported), [`programs`](Experiment::programs),
/// [`load`](Experiment::load) and [`sentinel`](Experiment::sentinel).
pub trait Experiment {
    /// What it says of itself.
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

    /// What the kernel must have for a case, the most telling first. A case that lacks something is `unsupported`,
    /// and the first that is missing is the reason.
    fn needs(&self, _case: &Case) -> Vec<Feature> {
        Vec::new()
    }

    /// Why a case can't run here, and what to do about it; `None` where it can. Follows from
    /// [`needs`](Experiment::needs), which is what experiments declare; tests of the engine script it.
    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        self.missing(&self.needs(case))
    }

    /// The first of these that the kernel lacks, and what to do about it.
    fn missing(&self, needs: &[Feature]) -> Result<Option<String>> {
        for feature in needs {
            if let Some(missing) = feature.missing()? {
                return Ok(Some(remedy::with_remedy(
                    &missing,
                    self.description().counts,
                )));
            }
        }
        Ok(None)
    }

    /// What is timed and with what, where that can differ between builds and kernels: the build of the programs,
    /// their loop and their clock. Part of the record.
    fn programs(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Opens an epoch: programs, maps and servers made afresh for `setup.cases`.
    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>>;

    /// The program that stays loaded through the whole run, to separate drift from the luck of a load.
    fn sentinel(&self, _setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        Ok(None)
    }
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
    use crate::builtin::{aa, ladder};

    /// One case, with these needs.
    struct Needs(Vec<Feature>);

    impl Experiment for Needs {
        fn description(&self) -> Description {
            Description::new("needs", "", &[])
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

        fn load(&self, _setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
            anyhow::bail!("nothing to load")
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
        let doubled = aa::AaTest::of(Box::new(Needs(vec![Feature::Lsm])), &["added-0"]);
        for case in doubled.cases() {
            assert_eq!(doubled.needs(&case), [Feature::Lsm], "{}", case.name);
        }
        assert_eq!(doubled.cases().len(), 2);
    }
}
