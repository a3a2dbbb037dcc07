//! A process with its descendants, their threads and open files.

use std::{collections::BTreeSet, fs, path::Path};

use bpfcost_bpf::program_of;
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

/// The BPF programs that a process holds by its open files, by its folder in /proc: programs and links say which.
pub fn bpf_programs(folder: &Path) -> BTreeSet<u32> {
    let descriptors = fs::read_dir(folder.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .filter(|descriptor| {
            // Most are files and sockets, and need not be asked: `anon_inode:bpf-prog`, `anon_inode:bpf_link`.
            let kind = fs::read_link(descriptor.path()).unwrap_or_default();
            kind.to_str().is_some_and(|kind| kind.contains("bpf"))
        })
        .filter_map(|descriptor| {
            let facts = folder.join("fdinfo").join(descriptor.file_name());
            program_of(&fs::read_to_string(facts).ok()?)
        })
        .collect()
}
