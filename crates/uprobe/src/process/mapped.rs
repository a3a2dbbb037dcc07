//! Memory that a tool has mapped into the process, in memory that its tracer process shares: it is unmapped at the end.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

/// Most ranges at once. What there is no room for stays in the process.
const ENTRIES: usize = 1024;
/// The tool of ranges that this one has mapped itself.
pub(super) const OWN: u64 = 0;

/// The ranges that a tool has to unmap: those that it has mapped, and those that earlier ones had to leave.
pub(super) struct Mapped {
    /// Not 0 if something else may lead to the code, for ever.
    is_kept: AtomicU64,
    entries: [Entry; ENTRIES],
}

/// One range: it ends at 0 where there is none.
struct Entry {
    start: AtomicU64,
    end: AtomicU64,
    /// The number of the tool, so that what one has mapped is unmapped together.
    tool: AtomicU64,
}

/// Memory of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) range: Range<u64>,
    pub(super) tool: u64,
}

impl Mapped {
    /// Adds memory that was just mapped.
    pub(super) fn add(&self, owned: &Owned) {
        let mut entries = self.entries.iter();
        let free = entries.find(|entry| entry.end.load(Ordering::Relaxed) == 0);
        if let Some(entry) = free {
            entry.start.store(owned.range.start, Ordering::Relaxed);
            entry.tool.store(owned.tool, Ordering::Relaxed);
            entry.end.store(owned.range.end, Ordering::Release);
        }
    }

    /// Takes out what begins at an address: it is about to be unmapped, or left.
    pub(super) fn remove(&self, start: u64) {
        for entry in &self.entries {
            if entry.start.load(Ordering::Relaxed) == start {
                entry.end.store(0, Ordering::Release);
            }
        }
    }

    /// The ranges.
    pub(super) fn all(&self) -> Vec<Owned> {
        let entries = self.entries.iter().filter_map(|entry| {
            let end = entry.end.load(Ordering::Acquire);
            let start = entry.start.load(Ordering::Relaxed);
            let tool = entry.tool.load(Ordering::Relaxed);
            let range = start..end;
            (end != 0).then_some(Owned { range, tool })
        });
        entries.collect()
    }

    /// Says that something else may lead to the code for ever: a breakpoint that was set on a jump has a copy of it.
    pub(super) fn keep(&self) {
        self.is_kept.store(1, Ordering::Release);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire) != 0
    }

    /// Returns whether there is nothing to unmap.
    pub(super) fn is_empty(&self) -> bool {
        self.is_kept() || self.all().is_empty()
    }
}
