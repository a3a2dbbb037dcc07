//! The built-in experiments, one file each, and their registry.
//!
//! To add one: write a file here that implements [`Experiment`], and add its line to the registry below.

pub mod aa;
pub mod attach;
pub mod attaching;
mod batch;
mod factor;
pub mod kretprobe;
pub mod ladder;
pub mod map;
mod memory;
pub mod needs;
mod packet_diff;
pub mod pool;
pub mod program;
pub mod safeguards;
pub mod stack;
pub mod stack_places;
mod thread_group;
pub mod timed;
pub mod uprobe_threads;
pub mod view;
pub mod workload;
pub mod xdp_lb;

use bpfcost_model::Experiment;
use bpfcost_record::Record;
use bpfcost_report::{
    csv::CsvColumns,
    section::{Detail, Section},
};

/// Sections and columns that an experiment adds to reports, beside those of its layout.
pub(crate) struct Extras {
    /// Sections of a record; none where it is of another experiment.
    sections: fn(&Record, Detail) -> Vec<Section>,
    /// Sections of records of one experiment on several targets; none where they are of another one.
    across: fn(&[&Record]) -> Vec<Section>,
    /// Columns of CSV for a record's cases; `None` where it is of another experiment.
    columns: for<'a> fn(&'a Record) -> Option<CsvColumns<'a>>,
    /// The one Markdown document of records on several targets; `None` where they are of another experiment.
    document: fn(&[&Record]) -> Option<String>,
}

impl Extras {
    const NOTHING: Extras = Extras {
        sections: |_, _| Vec::new(),
        across: |_| Vec::new(),
        columns: |_| None,
        document: |_| None,
    };
}

type Experiments = Vec<Box<dyn Experiment>>;

/// An experiment, or several that one file describes, with their own parts of reports.
type Entry = (fn() -> Experiments, Extras);

/// Every experiment in the order of `bpfcost list`.
const REGISTRY: &[Entry] = &[
    (|| one(xdp_lb::XdpLb::default()), Extras::NOTHING),
    (|| one(attach::AttachTypes), attach::OWN),
    (
        || one(uprobe_threads::UprobeThreads::default()),
        Extras::NOTHING,
    ),
    (|| one(attaching::Attaching::default()), attaching::OWN),
    (|| one(map::Maps::default()), Extras::NOTHING),
    (|| one(stack::Stacks), Extras::NOTHING),
    (|| one(stack_places::StackPlaces), Extras::NOTHING),
    (|| one(pool::Pools::default()), Extras::NOTHING),
    (|| one(kretprobe::Kretprobes::default()), Extras::NOTHING),
    (
        || workload::built_in().flat_map(one).collect(),
        workload::views::OWN,
    ),
    (|| one(ladder::KnownAnswers), Extras::NOTHING),
    // This experiment comes from a command line alone.
    (Vec::new, program::views::OWN),
];

fn one(experiment: impl Experiment + 'static) -> Experiments {
    vec![Box::new(experiment)]
}

/// Every experiment that this program knows.
pub fn all() -> Vec<Box<dyn Experiment>> {
    REGISTRY.iter().flat_map(|entry| (entry.0)()).collect()
}

/// The name of an experiment whose cases span a grid, as the example in questions that are about such.
pub(crate) fn example_of_a_grid() -> String {
    let mut all = all().into_iter().map(|one| one.description());
    let grid = all.find(|one| one.layout.compares_nets());
    grid.map(|one| one.name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn floors_and_pairs_are_cases_and_factors_are_described() {
        for mut experiment in all() {
            for cpus in [1, 2, 16] {
                experiment.on_cpus(&(0..cpus).collect::<Vec<u32>>());
                let description = experiment.description();
                let cases = experiment.cases();
                let names: BTreeSet<&str> = cases.iter().map(|case| &*case.name).collect();
                assert_eq!(names.len(), cases.len(), "{}", description.name);
                for case in &cases {
                    let floor = case.floor.as_deref();
                    assert!(floor.is_none_or(|floor| names.contains(floor)), "{floor:?}");
                    for factor in case.factors.keys() {
                        let described = |(name, _): &(String, String)| name == factor;
                        assert!(description.factors.iter().any(described), "{factor}");
                    }
                }
                for pair in experiment.pairs() {
                    assert!(names.contains(&*pair.case), "{}", pair.case);
                    assert!(names.contains(&*pair.baseline), "{}", pair.baseline);
                }
            }
        }
    }
}
