//! What probes brought into the machine, to be looked for when all is over: saying that nothing is left is worth
//! something only where somebody has looked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use super::programs::freed;
use crate::restore::started;

/// BPF programs, and processes with their starts, since their numbers are used again.
#[derive(Debug)]
struct Brought {
    programs: BTreeSet<u32>,
    processes: BTreeMap<u32, u64>,
}

/// How long a process that was killed may take to end: on a busy machine it has to be run once more for that.
const ENDED: Duration = Duration::from_secs(2);
/// How often is looked whether it has.
const LOOK: Duration = Duration::from_millis(5);

static BROUGHT: Mutex<Brought> = Mutex::new(Brought {
    programs: BTreeSet::new(),
    processes: BTreeMap::new(),
});

/// Takes down what a probe has brought.
pub(super) fn remember(programs: &[u32], processes: &[u32]) {
    let Ok(mut brought) = BROUGHT.lock() else {
        return;
    };
    brought.programs.extend(programs);
    let processes = processes.iter();
    let with_start = processes.filter_map(|&pid| Some((pid, started(pid)?)));
    brought.processes.extend(with_start);
}

/// What is still there of all that was brought, in words; empty where nothing is.
pub(crate) fn left() -> Vec<String> {
    let Ok(brought) = BROUGHT.lock() else {
        return Vec::new();
    };
    let programs: Vec<u32> = brought.programs.iter().copied().collect();
    let programs = freed(&programs);
    let programs = programs.iter().map(|id| format!("BPF program {id}"));
    let processes = alive(&brought.processes);
    let processes = processes.iter().map(|pid| format!("process {pid}"));
    programs.chain(processes).collect()
}

/// Waits until processes have ended; those that stay.
fn alive(processes: &BTreeMap<u32, u64>) -> Vec<u32> {
    let begun = Instant::now();
    loop {
        let there = |(pid, start): (&u32, &u64)| (started(*pid) == Some(*start)).then_some(*pid);
        let alive: Vec<u32> = processes.iter().filter_map(there).collect();
        if alive.is_empty() || begun.elapsed() > ENDED {
            return alive;
        }
        sleep(LOOK);
    }
}
