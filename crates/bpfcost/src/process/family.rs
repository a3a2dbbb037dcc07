//! A process and all that it started.

use std::fs;

/// Their numbers, the process's own first. One that has ended has no family.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(pid) = pids.get(next) {
        // Each thread has children of its own.
        let threads = fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let children: Vec<u32> = threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
            .flat_map(|pids| {
                pids.split_whitespace()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        pids.extend(children);
        next += 1;
    }
    pids
}
