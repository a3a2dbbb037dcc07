//! Orderings of the freelist that are stronger than loom asks for within its bounds. They are as the kernel has
//! them, who runs on machines of every kind; a bounded look is no reason to have less.

use crate::fault::{Fault, FaultKind};

#[derive(Debug)]
pub(crate) struct Exemption {
    /// The code in the line of the source.
    code: &'static str,
    /// The weakening that no test catches.
    kind: FaultKind,
    /// The reason to keep it: the kernel's code at that place.
    pub(crate) kernel: &'static str,
}

impl Exemption {
    pub(crate) fn is(&self, fault: &Fault) -> bool {
        self.kind == fault.kind && fault.code().contains(self.code)
    }
}

pub(crate) const FREELIST: &[Exemption] = &[
    exempt(
        "head = self.head.load(Acquire);",
        FaultKind::Relaxed,
        "smp_load_acquire of the head, at first and again",
    ),
    exempt(
        "self.head.compare_exchange(at, next, Acquire, Relaxed)",
        FaultKind::Relaxed,
        "try_cmpxchg_acquire of the head",
    ),
    exempt(
        "node.references.fetch_add(0u32.wrapping_sub(2), AcqRel)",
        FaultKind::OnlyAcquires,
        "atomic_fetch_add, fully ordered",
    ),
    exempt(
        "node.references.fetch_add(0u32.wrapping_sub(2), AcqRel)",
        FaultKind::OnlyReleases,
        "atomic_fetch_add, fully ordered",
    ),
    exempt(
        "node.references.fetch_add(0u32.wrapping_sub(1), AcqRel)",
        FaultKind::OnlyAcquires,
        "atomic_fetch_add, fully ordered",
    ),
    exempt(
        "self.head.compare_exchange(head, at, Release, Relaxed)",
        FaultKind::Relaxed,
        "try_cmpxchg_release of the head",
    ),
    exempt(
        "node.references.fetch_add(SHOULD_BE_ON - 1, Release)",
        FaultKind::Relaxed,
        "atomic_fetch_add_release",
    ),
];

const fn exempt(code: &'static str, kind: FaultKind, kernel: &'static str) -> Exemption {
    Exemption { code, kind, kernel }
}
