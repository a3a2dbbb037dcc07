//! `builtin:stats`: the kernel's account of run times, `bpf_stats`, on while it is attached. Joined with another
//! probe, it measures that probe's cost while `bpf_stats` is on.

use bpfcost_bpf::stats::StatsOn;

use super::{BuiltIn, Probe, WindowCounts};
use bpfcost_model::Fault;
use bpfcost_process::RunContext;

/// The entry of `builtin:stats`.
pub(super) const PROBE: BuiltIn = BuiltIn::plain("stats", |_| Ok(Box::new(Stats::default())));

#[derive(Debug, Default)]
struct Stats(Option<StatsOn>);

impl Probe for Stats {
    fn attach(&mut self, _scene: &RunContext) -> Result<(), Fault> {
        self.0 = Some(StatsOn::start()?);
        Ok(())
    }

    fn detach(&mut self) -> Result<WindowCounts, Fault> {
        self.0 = None;
        Ok(WindowCounts::default())
    }
}
