//! The BPF programs of other processes: which they are, when all are loaded and attached, and whether they are gone.

use std::{
    collections::BTreeSet,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use procfs::process::all_processes;

use super::inventory::Inventory;

/// Time for which what is loaded and attached must stay the same to be all of it.
const STABLE: Duration = Duration::from_millis(300);
/// Interval of the looks at it.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that the kernel has to free programs whose processes have ended.
const FREED: Duration = Duration::from_secs(3);

/// The programs of processes that are being started.
#[derive(Debug)]
pub(super) struct Loading {
    /// Programs that were in the kernel before.
    before: BTreeSet<u32>,
    /// True where only programs that they hold count as theirs.
    only_held: bool,
    programs: BTreeSet<u32>,
    inventory: Inventory,
    since: Instant,
}

impl Loading {
    /// Looks at what there is before they start. Of processes that are said to have no programs, `only_held` ones count: another
    /// process may load some meanwhile.
    pub(super) fn begin(only_held: bool) -> Self {
        Loading {
            before: loaded(),
            only_held,
            programs: BTreeSet::new(),
            inventory: Inventory::default(),
            since: Instant::now(),
        }
    }

    /// Looks again, after a moment: returns what these processes have loaded, once that and its attachments are stable.
    pub(super) fn look(&mut self, pids: &[u32]) -> Option<Vec<u32>> {
        sleep(POLL_INTERVAL);
        let programs = self.programs_of(pids);
        let inventory = Inventory::read(&Vec::from_iter(programs.clone()), pids);
        if programs != self.programs || inventory != self.inventory {
            self.programs = programs;
            self.inventory = inventory;
            self.since = Instant::now();
        }
        let done = !self.programs.is_empty() && self.since.elapsed() >= STABLE;
        done.then(|| self.programs.iter().copied().collect())
    }

    /// The programs of these processes now: those that they loaded at first, and what else they hold by now. Those that are
    /// gone may be among them.
    pub(super) fn programs_now(&self, pids: &[u32]) -> Vec<u32> {
        let held = held(pids);
        let new = held.difference(&self.before);
        self.programs
            .union(&new.copied().collect())
            .copied()
            .collect()
    }

    /// Programs that they hold by their open files; else those that are new in the kernel and held by no other process,
    /// for some close theirs once they are attached.
    fn programs_of(&self, pids: &[u32]) -> BTreeSet<u32> {
        let held = held(pids);
        let new: BTreeSet<u32> = loaded().difference(&self.before).copied().collect();
        if self.only_held || !held.is_empty() || new.is_empty() {
            // Those that were there before belong to others, which they observe.
            return held.difference(&self.before).copied().collect();
        }
        let all = all_processes().into_iter().flatten().flatten();
        let others = all.map(|process| process.pid.cast_unsigned());
        let others: Vec<u32> = others.filter(|pid| !pids.contains(pid)).collect();
        new.difference(&self::held(&others)).copied().collect()
    }
}

/// Waits until the kernel has freed programs; those that stay.
pub(super) fn freed(programs: &[u32]) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let loaded = loaded();
        let left: Vec<u32> = programs
            .iter()
            .copied()
            .filter(|id| loaded.contains(id))
            .collect();
        if left.is_empty() || begun.elapsed() > FREED {
            return left;
        }
        sleep(POLL_INTERVAL);
    }
}

fn loaded() -> BTreeSet<u32> {
    let programs = bpfcost_bpf::loaded_programs();
    programs.into_iter().map(|program| program.id).collect()
}

/// The programs that processes hold by their open files, perf events with a program among them.
fn held(pids: &[u32]) -> BTreeSet<u32> {
    let folders = pids
        .iter()
        .map(|pid| Path::new("/proc").join(pid.to_string()));
    let events = pids.iter().flat_map(|pid| bpfcost_bpf::perf_events(*pid));
    let events = events.map(|event| event.program);
    let files = folders.flat_map(|folder| bpfcost_bpf::programs_held(&folder));
    files.chain(events).collect()
}
