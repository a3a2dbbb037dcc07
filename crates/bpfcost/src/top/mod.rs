//! The cost of the BPF programs that are loaded on this machine: run counts times run times by the kernel's own
//! account (`bpf_stats`), which is on while a [`Watcher`] lives.
//!
//! That account has a bias, its own clock reads. First of all, the account of an empty program is measured here,
//! and then subtracted. The account does not include the way to a program (the trap of a kprobe, the call of a
//! tracepoint), so neither do the numbers shown. It is wall time: a program that is preempted, interrupted, or sleeps
//! keeps its clock running. The account of a program goes with it, so of those that are unloaded between two looks,
//! only their number is known.

mod holders;
mod tax;
pub(crate) mod text;
mod view;

use std::{
    collections::BTreeMap,
    thread::available_parallelism,
    time::{Duration, Instant},
};

use bpfcost_bpf::{
    ProgramStats, program_stats,
    stats::{RunStats, StatsOn},
};

pub(crate) use view::{TopProgram, TopView};
use {holders::HolderCache, tax::StatsOverhead};

/// Keeps the kernel's account on, and looks at it.
pub(crate) struct Watcher {
    _on: StatsOn,
    tax: StatsOverhead,
    since: Instant,
    /// The account at the last look, by program.
    before: BTreeMap<u32, RunStats>,
    held: HolderCache,
}

impl Watcher {
    /// Switches the account on, and measures what it costs.
    pub(crate) fn start() -> bpfcost_bpf::Result<Self> {
        let (on, tax) = tax::measured()?;
        Ok(Watcher {
            _on: on,
            tax,
            since: Instant::now(),
            before: by_program(&program_stats()),
            held: HolderCache::default(),
        })
    }

    /// Reads what ran since the last look.
    pub(crate) fn look(&mut self) -> TopView {
        let now = program_stats();
        let time = self.since.elapsed();
        self.since += time;
        let ids: Vec<u32> = now.iter().map(|one| one.program.id).collect();
        self.held.know(&ids);
        let view = self.view(&now, time);
        self.before = by_program(&now);
        view
    }

    fn view(&self, now: &[ProgramStats], time: Duration) -> TopView {
        let cpus = available_parallelism().map_or(1, usize::from);
        let ran = now.iter().map(|one| {
            // One that is new has run since it is there.
            let before = self.before.get(&one.program.id).copied();
            let stats = one.stats.since(before.unwrap_or_default());
            let by = self.held.by(one.program.id);
            (one.program.clone(), stats, by)
        });
        let left = by_program(now);
        let vanished = self.before.keys().filter(|id| !left.contains_key(*id));
        TopView::new(time, cpus, self.tax, ran, vanished.count())
    }
}

fn by_program(stats: &[ProgramStats]) -> BTreeMap<u32, RunStats> {
    stats
        .iter()
        .map(|one| (one.program.id, one.stats))
        .collect()
}
