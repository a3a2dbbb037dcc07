//! The kernel memory of maps, and the wait until the kernel has freed it.

use std::{fs, thread, time::Duration};

use bpfcost_process::wait_until;

/// Maximum time that the kernel may take to free tables before the next epoch goes on regardless.
const FREE_TIMEOUT: Duration = Duration::from_millis(300);
/// Interval between two checks for freed tables.
const FREE_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Memory that may come and go meanwhile for other reasons, in KiB.
const FREE_SLACK_KIB: u64 = 1024;

/// Maximum number of repeated reads of a count that may still change, and the pause before each.
const STEADY_READS: usize = 20;
const STEADY_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Vmalloc memory, which tables are made of, in KiB; `None` where the kernel does not report it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelMemory(Option<u64>);

impl KernelMemory {
    /// Reads the memory in use now.
    pub(super) fn now() -> Self {
        KernelMemory(vmalloc_used())
    }

    /// Waits until no more is in use than at `self`; a map is freed some time after its last reference.
    pub(super) fn wait_until_freed(self) {
        let Some(before) = self.0 else { return };
        wait_until(FREE_TIMEOUT, FREE_POLL_INTERVAL, || {
            vmalloc_used().is_none_or(|now| now <= before + FREE_SLACK_KIB)
        });
    }
}

fn vmalloc_used() -> Option<u64> {
    field(&meminfo()?, VMALLOC)
}

/// Bytes of memory that the kernel has in use for itself: vmalloc, slabs that it can't give back, and memory for each
/// CPU. In whole pages, of everyone. `None` where the kernel does not report it.
pub(super) fn kernel_bytes() -> Option<u64> {
    // Each CPU keeps a part of the counts until it is large; this adds them up. Only root may, and else they stay apart.
    let _ = fs::read_to_string("/proc/sys/vm/stat_refresh");
    let meminfo = meminfo()?;
    let fields = [VMALLOC, "SUnreclaim:", "Percpu:"].map(|name| field(&meminfo, name));
    let sum: Option<u64> = fields.into_iter().sum();
    Some(sum? * 1024)
}

/// [`kernel_bytes`], once they are the same twice in a row: what was freed before is no longer among them. On a busy machine
/// they may never be; then what they are after a fifth of a second.
pub(super) fn steady_kernel_bytes() -> Option<u64> {
    steady(kernel_bytes, || thread::sleep(STEADY_POLL_INTERVAL))
}

/// Reads until two results in a row are equal, or the reads are used up, and returns the last result.
fn steady<T: PartialEq>(read: impl Fn() -> T, pause: impl Fn()) -> T {
    let mut last = read();
    for _ in 0..STEADY_READS {
        pause();
        let now = read();
        if now == last {
            break;
        }
        last = now;
    }
    last
}

const VMALLOC: &str = "VmallocUsed:";

fn meminfo() -> Option<String> {
    fs::read_to_string("/proc/meminfo").ok()
}

/// A line such as `SUnreclaim:   12345 kB`.
fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn lines_of_meminfo_are_read() {
        let meminfo = "MemFree:  9 kB\nSUnreclaim:      12345 kB\nVmallocUsed:   7 kB\n";
        assert_eq!(field(meminfo, VMALLOC), Some(7));
        assert_eq!(field(meminfo, "SUnreclaim:"), Some(12345));
        assert_eq!(field(meminfo, "Percpu:"), None);
    }

    #[test]
    fn a_count_is_awaited_until_it_is_steady_but_not_for_ever() {
        let reads = Cell::new(0);
        let falling = || {
            reads.set(reads.get() + 1);
            [9, 7, 4, 4, 2][reads.get() - 1]
        };
        assert_eq!((steady(falling, || ()), reads.get()), (4, 4));
        let reads = Cell::new(0);
        let restless = || {
            reads.set(reads.get() + 1);
            reads.get()
        };
        let most = 1 + STEADY_READS;
        assert_eq!((steady(restless, || ()), reads.get()), (most, most));
    }
}
