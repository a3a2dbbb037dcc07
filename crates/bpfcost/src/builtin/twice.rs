//! A/A: cases of an experiment entered twice under two names, so that a run compares each with
//! itself. Whatever it finds is false; `self-test` counts how often it does.

use anyhow::{Context, Result};
use bpfcost_bpf::Feature;

use crate::experiment::{
    Batch, Case, Experiment, Fault, Loaded, Overhead, Pair, Sentinel, Setup, Trial, Unit,
};

/// Behind the name of the second entry.
const AGAIN: &str = "~again";

/// Some cases of an experiment, each entered twice.
pub struct Twice {
    inner: Box<dyn Experiment>,
    cases: Vec<String>,
}

impl Twice {
    /// The named cases of `inner`; names that it does not have are passed over.
    pub fn of(inner: Box<dyn Experiment>, cases: &[&str]) -> Self {
        Twice {
            inner,
            cases: cases.iter().map(ToString::to_string).collect(),
        }
    }

    fn inner_setup(setup: &Setup) -> Setup {
        let mut inner = setup.clone();
        inner
            .cases
            .iter_mut()
            .for_each(|case| *case = original(case));
        inner.cases.dedup_by(|a, b| a.name == b.name);
        inner
    }
}

/// The case as its experiment knows it.
fn original(case: &Case) -> Case {
    let name = case
        .name
        .strip_suffix(AGAIN)
        .unwrap_or(&case.name)
        .to_owned();
    Case {
        name,
        ..case.clone()
    }
}

impl Experiment for Twice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn about(&self) -> &'static str {
        "cases entered twice: every difference is false"
    }

    fn unit(&self) -> Unit {
        self.inner.unit()
    }

    fn margin(&self) -> f64 {
        self.inner.margin()
    }

    fn factors(&self) -> Vec<(&str, &str)> {
        self.inner.factors()
    }

    fn privileged(&self) -> bool {
        self.inner.privileged()
    }

    fn cases(&self) -> Vec<Case> {
        let wanted = |case: &Case| self.cases.contains(&case.name);
        let twice = |case: Case| {
            // Floors play no part in a comparison of raw costs.
            let first = Case {
                floor: None,
                ..case
            };
            let again = Case {
                name: first.name.clone() + AGAIN,
                ..first.clone()
            };
            [first, again]
        };
        self.inner
            .cases()
            .into_iter()
            .filter(wanted)
            .flat_map(twice)
            .collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let pair = |case: &String| Pair {
            case: case.clone() + AGAIN,
            baseline: case.clone(),
            about: "against itself".into(),
        };
        self.cases.iter().map(pair).collect()
    }

    fn needs(&self, case: &Case) -> Vec<Feature> {
        self.inner.needs(&original(case))
    }

    fn cpus(&self, case: &Case) -> u32 {
        self.inner.cpus(&original(case))
    }

    fn overhead(&self) -> Overhead {
        self.inner.overhead()
    }

    fn programs(&self) -> Result<Option<String>> {
        self.inner.programs()
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn Loaded>> {
        let inner = self
            .inner
            .load(&Twice::inner_setup(setup))
            .context("loading an A/A epoch")?;
        Ok(Box::new(LoadedTwice { inner }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        self.inner.sentinel(&Twice::inner_setup(setup))
    }
}

struct LoadedTwice {
    inner: Box<dyn Loaded>,
}

impl Loaded for LoadedTwice {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        match case.name.ends_with(AGAIN) {
            true => Ok(()),
            false => self.inner.prepare(case),
        }
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        self.inner.trial(&original(case), batch)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        self.inner.kernel_bytes()
    }

    fn unload(self: Box<Self>) -> Result<()> {
        self.inner.unload()
    }
}
