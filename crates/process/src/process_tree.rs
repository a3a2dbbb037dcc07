//! A process with its descendants, their threads and open files.

use procfs::process::{FDTarget, Process, Task};

/// PIDs of a process and its descendants, its own first. One that has ended is alone.
pub fn process_tree(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        // Each thread has its own children.
        pids.extend(threads(pid).flat_map(|thread| thread.children().unwrap_or_default()));
        next += 1;
    }
    pids
}

/// The threads of a process; none of one that has ended.
pub fn threads(pid: u32) -> impl Iterator<Item = Task> {
    let process = Process::new(pid.cast_signed());
    let threads = process.and_then(|process| process.tasks());
    threads.into_iter().flatten().flatten()
}

/// Whether a process has that open; not, where it is gone.
pub fn holds(pid: u32, what: &FDTarget) -> bool {
    let open = Process::new(pid.cast_signed()).and_then(|process| process.fd());
    let mut open = open.into_iter().flatten().flatten();
    open.any(|one| one.target == *what)
}
