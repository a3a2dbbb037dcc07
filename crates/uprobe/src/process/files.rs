//! The limit on a process's open files, raised while it makes some for the tool.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;

/// Number of files that a session opens at most.
const FILES: u64 = 64;

/// A limit that is put back when this is dropped.
#[derive(Debug)]
pub(super) struct FileLimit {
    pid: i32,
    before: Rlimit,
    raised: Rlimit,
}

impl FileLimit {
    /// Lets a process open more files than it may. `None` where that is not permitted, or there is no limit.
    pub(super) fn raise(pid: i32) -> Option<Self> {
        let before = limit(pid)?;
        let soft = before.current? + FILES;
        let raised = Rlimit {
            current: Some(soft),
            maximum: before.maximum.map(|hard| hard.max(soft)),
        };
        set(pid, raised)?;
        Some(FileLimit {
            pid,
            before,
            raised,
        })
    }
}

impl Drop for FileLimit {
    fn drop(&mut self) {
        // Another thread may have set it meanwhile.
        if limit(self.pid) == Some(self.raised) {
            set(self.pid, self.before);
        }
    }
}

fn set(pid: i32, limit: Rlimit) -> Option<Rlimit> {
    prlimit(Some(Pid::from_raw(pid)?), Resource::Nofile, limit).ok()
}

fn limit(pid: i32) -> Option<Rlimit> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_ascii_whitespace();
    let mut next = || words.next().map(|word| word.parse().ok());
    Some(Rlimit {
        current: next()?,
        maximum: next()?,
    })
}
