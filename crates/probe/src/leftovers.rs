//! Leftovers of probes: the programs and processes that probes started are recorded, and checked at the end of a run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use super::programs::freed;
use bpfcost_process::restore::started;

/// BPF programs, and processes with their start times, since PIDs are reused.
#[derive(Debug)]
struct StartedSet {
    programs: BTreeSet<u32>,
    processes: BTreeMap<u32, u64>,
}

/// Time that a killed process has to end: on a busy machine it waits for a CPU first.
const ENDED: Duration = Duration::from_secs(2);
/// Interval of the checks for that.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static STARTED: Mutex<StartedSet> = Mutex::new(StartedSet {
    programs: BTreeSet::new(),
    processes: BTreeMap::new(),
});

/// Records what a probe has started.
pub(super) fn remember(programs: &[u32], processes: &[u32]) {
    let Ok(mut all) = STARTED.lock() else {
        return;
    };
    all.programs.extend(programs);
    let processes = processes.iter();
    let with_start = processes.filter_map(|&pid| Some((pid, started(pid)?)));
    all.processes.extend(with_start);
}

/// Describes the leftovers; empty if there are none.
pub fn leftovers() -> Vec<String> {
    let Ok(all) = STARTED.lock() else {
        return Vec::new();
    };
    let programs: Vec<u32> = all.programs.iter().copied().collect();
    let programs = freed(&programs);
    let programs = programs.iter().map(|id| format!("BPF program {id}"));
    let processes = alive(&all.processes);
    let processes = processes.iter().map(|pid| format!("process {pid}"));
    programs.chain(processes).collect()
}

/// Waits until processes have ended, and returns those that have not.
fn alive(processes: &BTreeMap<u32, u64>) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let there = |(pid, start): (&u32, &u64)| (started(*pid) == Some(*start)).then_some(*pid);
        let alive: Vec<u32> = processes.iter().filter_map(there).collect();
        if alive.is_empty() || begun.elapsed() > ENDED {
            return alive;
        }
        sleep(POLL_INTERVAL);
    }
}
