//! The experiments that this program has, each in a file of its own.
//!
//! To add one: write a file here that implements [`Experiment`], and name it in [`all`].

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

use crate::experiment::Experiment;

/// Every experiment that this program knows, in the order of `bpfcost list`.
pub fn all() -> Vec<Box<dyn Experiment>> {
    let mut all: Vec<Box<dyn Experiment>> = vec![
        Box::new(xdp_lb::XdpLb::default()),
        Box::new(attach::AttachTypes),
        Box::new(map::Maps::default()),
        Box::new(pool::Pools::default()),
        Box::new(kretprobe::Kretprobes::default()),
    ];
    all.extend(workload::built_in().map(|one| Box::new(one) as Box<dyn Experiment>));
    all.push(Box::new(ladder::KnownAnswers));
    all
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
