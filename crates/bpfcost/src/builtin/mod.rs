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
