//! Several probes joined as one: attached in order, detached in reverse order.

use super::{Probe, WindowCounts};
use bpfcost_model::Fault;
use bpfcost_process::RunContext;

pub(super) struct JoinedProbes(pub(super) Vec<Box<dyn Probe>>);

impl Probe for JoinedProbes {
    fn attach(&mut self, context: &RunContext) -> Result<(), Fault> {
        let attached = self
            .0
            .iter_mut()
            .try_for_each(|probe| probe.attach(context));
        if attached.is_err() {
            // Those that are on must not stay on; the first failure is the one to return.
            let _ = self.detach();
        }
        attached
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        let mut all = WindowCounts::default();
        for probe in self.0.iter_mut().rev() {
            let seen = probe.detach()?;
            all.hits = match (all.hits, seen.hits) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            all.lost += seen.lost;
            for (name, count) in seen.counts {
                *all.counts.entry(name).or_default() += count;
            }
        }
        Ok(all)
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().flat_map(|probe| probe.pids()).collect()
    }

    fn cpu_ns(&self) -> Option<f64> {
        // Those without processes spend nothing.
        let with = self.0.iter().filter(|probe| !probe.pids().is_empty());
        with.map(|probe| probe.cpu_ns()).sum()
    }

    fn programs(&self) -> Vec<u32> {
        self.0.iter().flat_map(|probe| probe.programs()).collect()
    }
}
