//! Orderings of the freelist that are stronger than loom asks for within its bounds. They are as the kernel has
//! them, who runs on machines of every kind; a bounded look is no reason to have less.

use crate::fault::{Fault, FaultKind};

/// One of them.
#[derive(Debug)]
pub(crate) struct Kept {
    /// What is in the line of the source.
    code: &'static str,
    /// How it could be weaker.
    kind: FaultKind,
    /// Why it is kept: what the kernel has there.
    pub(crate) kernel: &'static str,
}

impl Kept {
    pub(crate) fn is(&self, fault: &Fault) -> bool {
        self.kind == fault.kind && fault.code().contains(self.code)
    }
}

pub(crate) const FREELIST: &[Kept] = &[
    kept(
        "head = self.head.load(Acquire);",
        FaultKind::Relaxed,
        "smp_load_acquire of the head, at first and again",
    ),
    kept(
        "self.head.compare_exchange(at, next, Acquire, Relaxed)",
        FaultKind::Relaxed,
        "try_cmpxchg_acquire of the head",
    ),
    kept(
        "node.references.fetch_add(0u32.wrapping_sub(2), AcqRel)",
        FaultKind::OnlyAcquires,
        "atomic_fetch_add, fully ordered",
    ),
    kept(
        "node.references.fetch_add(0u32.wrapping_sub(2), AcqRel)",
        FaultKind::OnlyReleases,
        "atomic_fetch_add, fully ordered",
    ),
    kept(
        "node.references.fetch_add(0u32.wrapping_sub(1), AcqRel)",
        FaultKind::OnlyAcquires,
        "atomic_fetch_add, fully ordered",
    ),
    kept(
        "self.head.compare_exchange(head, at, Release, Relaxed)",
        FaultKind::Relaxed,
        "try_cmpxchg_release of the head",
    ),
    kept(
        "node.references.fetch_add(SHOULD_BE_ON - 1, Release)",
        FaultKind::Relaxed,
        "atomic_fetch_add_release",
    ),
];

const fn kept(code: &'static str, kind: FaultKind, kernel: &'static str) -> Kept {
    Kept { code, kind, kernel }
}
