//! A/A test: each case of an experiment is in a run twice, under two names, and is compared with itself. Every
//! difference found is a false alarm; `self-test` counts them.

use anyhow::{Context, Result};
use bpfcost_bpf::Feature;

use crate::experiment::{
    Batch, Case, Description, Experiment, Fault, Layout, LoadedEpoch, Pair, Sentinel, Setup, Trial,
};

/// Suffix of the second entry's name.
const AGAIN: &str = "~again";

/// Some cases of an experiment, each entered twice.
pub struct AaTest {
    inner: Box<dyn Experiment>,
    cases: Vec<String>,
}

impl AaTest {
    /// The named cases of `inner`; unknown names are ignored.
    pub fn of(inner: Box<dyn Experiment>, cases: &[&str]) -> Self {
        AaTest {
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

impl Experiment for AaTest {
    /// The inner experiment's description, without its layout and metrics.
    fn description(&self) -> Description {
        let inner = self.inner.description();
        Description {
            about: "every case twice: each difference is a false alarm".into(),
            layout: Layout::Flat,
            metrics: Vec::new(),
            ..inner
        }
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

    fn programs(&self) -> Result<Option<String>> {
        self.inner.programs()
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let inner = self
            .inner
            .load(&AaTest::inner_setup(setup))
            .context("loading an A/A epoch")?;
        Ok(Box::new(LoadedAa { inner }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        self.inner.sentinel(&AaTest::inner_setup(setup))
    }
}

struct LoadedAa {
    inner: Box<dyn LoadedEpoch>,
}

impl LoadedEpoch for LoadedAa {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        if case.name.ends_with(AGAIN) {
            Ok(())
        } else {
            self.inner.prepare(case)
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
