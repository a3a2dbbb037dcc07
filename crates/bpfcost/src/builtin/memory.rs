//! The kernel memory of maps, and the wait until the kernel has freed it.

use std::{fs, thread, time::Duration};

/// How long the kernel may take to free tables before the next epoch goes on regardless.
const FREE_PATIENCE: Duration = Duration::from_millis(300);
/// How often to look whether it has.
const FREE_POLL: Duration = Duration::from_millis(2);
/// Memory that may come and go meanwhile for other reasons, in KiB.
const FREE_SLACK_KIB: u64 = 1024;

/// Vmalloc memory, which tables are made of, in KiB; `None` where the kernel does not report it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelMemory(Option<u64>);

impl KernelMemory {
    /// What is in use now.
    pub(super) fn now() -> Self {
        KernelMemory(vmalloc_used())
    }

    /// Waits until no more is in use than at `self`; a map is freed some time after its last reference.
    pub(super) fn wait_until_freed(self) {
        let Some(before) = self.0 else { return };
        let mut waited = Duration::ZERO;
        while waited < FREE_PATIENCE
            && vmalloc_used().is_some_and(|now| now > before + FREE_SLACK_KIB)
        {
            thread::sleep(FREE_POLL);
            waited += FREE_POLL;
        }
    }
}

fn vmalloc_used() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmallocUsed:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
