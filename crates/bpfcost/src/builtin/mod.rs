//! The built-in experiments, one file each, and their registry.
//!
//! To add one: write a file here that implements [`Experiment`], and add its line to the registry below.

pub mod aa;
pub mod attach;
pub mod attaching;
mod batch;
mod factor;
pub mod hook;
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
pub mod timed;
pub mod uprobe_threads;
pub mod workload;
pub mod xdp_lb;

use bpfcost_model::Experiment;

type Experiments = Vec<Box<dyn Experiment>>;

/// Every experiment in the order of `bpfcost list`: a line is a file's, which describes one or several.
const REGISTRY: &[fn() -> Experiments] = &[
    || one(xdp_lb::XdpLb::default()),
    || one(attach::AttachTypes),
    || one(uprobe_threads::UprobeThreads::default()),
    || one(attaching::Attaching::default()),
    || one(map::Maps::default()),
    || one(stack::Stacks),
    || one(stack_places::StackPlaces),
    || one(pool::Pools::default()),
    || one(kretprobe::Kretprobes::default()),
    || workload::built_in().flat_map(one).collect(),
    || one(ladder::KnownAnswers),
];

fn one(experiment: impl Experiment + 'static) -> Experiments {
    vec![Box::new(experiment)]
}

/// Every experiment that this program knows.
pub fn all() -> Vec<Box<dyn Experiment>> {
    each().collect()
}

/// The experiment of that name. Those behind it are not made: workloads are parsed for that.
pub(crate) fn named(name: &str) -> Option<Box<dyn Experiment>> {
    each().find(|one| one.description().name == name)
}

fn each() -> impl Iterator<Item = Box<dyn Experiment>> {
    REGISTRY.iter().flat_map(|experiments| experiments())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bpfcost_model::Description;

    use super::*;

    /// It is the example in questions that are about such.
    #[test]
    fn attach_has_a_grid() {
        let named = |one: &Description| one.name == bpfcost_pages::attach::NAME;
        let attach = all().into_iter().map(|one| one.description()).find(named);
        assert!(attach.is_some_and(|attach| attach.layout.compares_nets()));
    }

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
