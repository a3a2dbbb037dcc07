//! The experiments that this program has, each in a file of its own.
//!
//! To add one: write a file here that implements [`Experiment`], and add its line to the registry below.

pub mod attach;
mod batch;
mod crew;
pub mod kretprobe;
pub mod ladder;
pub mod map;
mod memory;
pub mod pool;
pub mod twice;
pub mod view;
pub mod workload;
pub mod xdp_lb;

use crate::{
    experiment::Experiment,
    record::Record,
    report::section::{Detail, Section},
};

/// What experiments show of their own, beside what their layout shows.
pub(crate) struct Own {
    /// Sections of a record; none where it is of another experiment.
    sections: fn(&Record, Detail) -> Vec<Section>,
    /// The one Markdown document of records on several targets; `None` where they are of another experiment.
    document: fn(&[&Record]) -> Option<String>,
}

impl Own {
    /// Nothing.
    const NOTHING: Own = Own {
        sections: |_, _| Vec::new(),
        document: |_| None,
    };
}

type Experiments = Vec<Box<dyn Experiment>>;

/// Every experiment in the order of `bpfcost list`, with what it shows of its own.
const REGISTRY: [(fn() -> Experiments, Own); 7] = [
    (|| one(xdp_lb::XdpLb::default()), Own::NOTHING),
    (|| one(attach::AttachTypes), attach::OWN),
    (|| one(map::Maps::default()), Own::NOTHING),
    (|| one(pool::Pools::default()), pool::predicted::OWN),
    (|| one(kretprobe::Kretprobes::default()), Own::NOTHING),
    (
        || workload::built_in().flat_map(one).collect(),
        workload::shown::OWN,
    ),
    (|| one(ladder::KnownAnswers), Own::NOTHING),
];

fn one(experiment: impl Experiment + 'static) -> Experiments {
    vec![Box::new(experiment)]
}

/// Every experiment that this program knows.
pub fn all() -> Vec<Box<dyn Experiment>> {
    REGISTRY.iter().flat_map(|entry| (entry.0)()).collect()
}

/// The names of the experiments whose cases span a grid, for questions that are about such.
pub(crate) fn grids() -> String {
    let all = all().into_iter().map(|one| one.description());
    let grids = all.filter(|one| one.layout.grid().is_some());
    grids.map(|one| one.name).collect::<Vec<_>>().join("|")
}
