//! The BPF programs of somebody else's processes: which they are, when all are loaded, and whether they are gone.

use std::{
    collections::BTreeSet,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

/// How long what is loaded must stay the same to be all of it.
const STABLE: Duration = Duration::from_millis(300);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long the kernel may take to free programs whose processes have ended.
const FREED: Duration = Duration::from_secs(3);

/// The programs of processes that are being started.
#[derive(Debug)]
pub(super) struct Loading {
    /// What was in the kernel before.
    before: BTreeSet<u32>,
    seen: BTreeSet<u32>,
    since: Instant,
}

impl Loading {
    /// Looks at what there is before they start.
    pub(super) fn begin() -> Self {
        Loading {
            before: loaded(),
            seen: BTreeSet::new(),
            since: Instant::now(),
        }
    }

    /// Looks again, after a moment: what these processes have loaded, once that has not changed for a while.
    pub(super) fn look(&mut self, pids: &[u32]) -> Option<Vec<u32>> {
        sleep(LOOK);
        let own = self.own(pids);
        if own != self.seen {
            self.seen = own;
            self.since = Instant::now();
        }
        let done = !self.seen.is_empty() && self.since.elapsed() >= STABLE;
        done.then(|| self.seen.iter().copied().collect())
    }

    /// What they hold by their open files; else what is new in the kernel and held by nobody else, for some close
    /// theirs once they are attached.
    fn own(&self, pids: &[u32]) -> BTreeSet<u32> {
        let held = held(pids);
        let new: BTreeSet<u32> = loaded().difference(&self.before).copied().collect();
        if !held.is_empty() || new.is_empty() {
            // Those that were there before are somebody else's, whom they ask about.
            return held.difference(&self.before).copied().collect();
        }
        let others: Vec<u32> = processes().filter(|pid| !pids.contains(pid)).collect();
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
        sleep(LOOK);
    }
}

fn loaded() -> BTreeSet<u32> {
    let programs = bpfcost_bpf::loaded_programs();
    programs.into_iter().map(|program| program.id).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The programs that processes hold by their open files: programs and links say which.
fn held(pids: &[u32]) -> BTreeSet<u32> {
    let files = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fdinfo")).ok())
        .flatten()
        .flatten();
    files
        .filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let id = text
                .lines()
                .find_map(|line| line.strip_prefix("prog_id:"))?;
            id.trim().parse().ok()
        })
        .collect()
}
