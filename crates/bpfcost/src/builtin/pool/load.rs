//! The load of a pool: who wants how many objects for how long.

use std::{collections::BTreeMap, fmt};

/// A load: who wants how many objects for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolLoad {
    pub(super) threads: usize,
    pub(super) objects: ObjectCount,
    /// Multiplications while an object is held, each of which needs the one before.
    pub(super) hold: u32,
    /// Objects that are taken before they are returned.
    pub(super) bulk: usize,
}

/// Number of objects in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectCount {
    /// For each CPU, and each object that is taken at a time.
    PerCpu(usize),
    /// In all.
    Total(usize),
}

/// Default values that names of cases leave out: two objects for each CPU, returned at once, one by one.
const USUAL: (ObjectCount, u32, usize) = (ObjectCount::PerCpu(2), 0, 1);

impl ObjectCount {
    pub(super) fn count(self, cpus: usize, bulk: usize) -> usize {
        match self {
            ObjectCount::PerCpu(each) => each.saturating_mul(cpus).saturating_mul(bulk),
            ObjectCount::Total(all) => all,
        }
    }
}

impl fmt::Display for ObjectCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectCount::PerCpu(each) => write!(f, "{each}x"),
            ObjectCount::Total(all) => write!(f, "{all}"),
        }
    }
}

impl PoolLoad {
    /// The factors in which a load is not the usual one, as names have them.
    pub(super) fn unusual(&self) -> Vec<String> {
        let (objects, hold, bulk) = USUAL;
        [
            (self.objects != objects).then(|| format!("objects-{}", self.objects)),
            (self.hold != hold).then(|| format!("hold-{}", self.hold)),
            (self.bulk != bulk).then(|| format!("bulk-{}", self.bulk)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The heading for all cases of this load.
    pub(super) fn group(&self) -> String {
        match self.unusual()[..] {
            [] => "two objects a CPU, returned at once".to_owned(),
            ref unusual => unusual.join(", ").replace('-', " "),
        }
    }

    pub(super) fn factors(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("threads".to_owned(), self.threads.to_string()),
            ("hold".to_owned(), self.hold.to_string()),
            ("bulk".to_owned(), self.bulk.to_string()),
        ])
    }

    /// The same without objects: what a floor knows of a load.
    pub(super) fn bare(self) -> Self {
        PoolLoad {
            objects: USUAL.0,
            ..self
        }
    }
}
