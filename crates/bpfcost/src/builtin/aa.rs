//! A/A test: each case of an experiment is in a run twice, under two names, and is compared with itself. Every
//! difference found is a false alarm; `self-test` counts them. Each of the two is loaded by itself, so that they differ
//! by all that loading does to two cases which cost the same: where programs and maps come to lie.

use anyhow::{Context, Result};
use bpfcost_model::Need;

use bpfcost_model::{
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
    pub fn new(inner: Box<dyn Experiment>, cases: &[&str]) -> Self {
        AaTest {
            inner,
            cases: cases.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the inner experiment's setup for the first entries, or with `again` for the second ones.
    fn inner_setup(setup: &Setup, again: bool) -> Setup {
        let of_entry = setup.cases.iter();
        let of_entry = of_entry.filter(|case| case.name.ends_with(AGAIN) == again);
        Setup {
            cases: of_entry.map(original).collect(),
            ..setup.clone()
        }
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
            layout: Layout::default(),
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

    fn needs(&self, case: &Case) -> Vec<Need> {
        self.inner.needs(&original(case))
    }

    fn programs(&self) -> Result<Option<String>> {
        self.inner.programs()
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let load = |again| {
            let setup = AaTest::inner_setup(setup, again);
            self.inner.load(&setup).context("loading an A/A epoch")
        };
        Ok(Box::new(LoadedAa {
            first: load(false)?,
            again: load(true)?,
        }))
    }

    fn sentinel(&self, setup: &Setup) -> Result<Option<Box<dyn Sentinel>>> {
        self.inner.sentinel(&AaTest::inner_setup(setup, false))
    }
}

struct LoadedAa {
    first: Box<dyn LoadedEpoch>,
    again: Box<dyn LoadedEpoch>,
}

impl LoadedAa {
    fn epoch_of(&mut self, case: &Case) -> &mut dyn LoadedEpoch {
        if case.name.ends_with(AGAIN) {
            &mut *self.again
        } else {
            &mut *self.first
        }
    }
}

impl LoadedEpoch for LoadedAa {
    fn prepare(&mut self, case: &Case) -> Result<(), Fault> {
        self.epoch_of(case).prepare(&original(case))
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        self.epoch_of(case).trial(&original(case), batch)
    }

    fn kernel_bytes(&self) -> Option<u64> {
        Some(self.first.kernel_bytes()? + self.again.kernel_bytes()?)
    }

    fn unload(self: Box<Self>) -> Result<()> {
        // The later one first: each waits until the memory is free that was so before it was loaded.
        self.again.unload()?;
        self.first.unload()
    }
}
