//! Proof of every trial of `stack`: as many stacks as were asked for, none of them lost, and the last one that of the
//! event.

use bpfcost_bpf::stack::{StackBatch, StackTaker};

use super::StackCase;
use bpfcost_model::{Problem, differs};

/// Maximum number of frames of the program itself that the helper includes in a stack.
const MAX_OWN: usize = 8;

/// Returns the first problem of a batch of stacks, apart from the addresses of the last stack.
pub(super) fn problem(taken: &StackBatch, case: StackCase, ops: u64) -> Option<Problem> {
    let taker = case.program.0;
    let failures = differs(
        "failures",
        0,
        taken.failures,
        "a stack was not taken, or a record had no room",
    );
    let lost = differs(
        "lost",
        0,
        lost(taken),
        "the walk did not reach the end of a stack",
    );
    let counted = taken.counted.unwrap_or(ops);
    let counted = differs(
        "counted",
        ops,
        counted,
        "stacks that were counted, of those taken",
    );
    let records = if taker.has_records() { ops } else { 0 };
    let read = taken.read.as_ref();
    let records = differs(
        "records",
        records,
        read.map_or(0, |read| read.records),
        "records in the ring buffer",
    );
    let alike = read.filter(|read| !read.alike).map(|_| Problem {
        check: "records alike".into(),
        expected: "the same stack in each record".into(),
        got: "another one in some".into(),
        detail: "all records are of one event".into(),
    });
    failures.or(lost).or(counted).or(records).or(alike)
}

/// Walks of a batch that did not go as they should.
pub(super) fn lost(taken: &StackBatch) -> u64 {
    let losses = taken.losses;
    losses.lost + losses.full + losses.stale
}

/// Comparison of the last stack with the one that the helper took of such an event.
pub(super) struct StackMatch {
    /// Index at which the event's stack begins, behind frames that helpers include: their own, or the program's.
    own: usize,
    /// Addresses from there on that are the same.
    pub(super) same: usize,
}

impl StackMatch {
    pub(super) fn new(taken: &StackBatch, reference: &[u64]) -> Self {
        let first = |address: &u64| Some(address) == reference.first();
        let own = taken.addresses.iter().position(first).unwrap_or(0);
        let addresses = taken.addresses[own..].iter().zip(reference);
        StackMatch {
            own,
            same: addresses.take_while(|(one, other)| one == other).count(),
        }
    }

    /// Returns the problem of a last stack that differs from the reference, or `None`.
    pub(super) fn problem(
        &self,
        taken: &StackBatch,
        case: StackCase,
        reference: &[u64],
    ) -> Option<Problem> {
        let (taker, asked) = (case.program.0, case.depth.1 as usize);
        if taker == StackTaker::Nothing {
            return None;
        }
        let addresses = &taken.addresses[self.own..];
        let is_whole = self.same == reference.len();
        let is_right = self.same == addresses.len()
            && (self.own == 0 || (!taker.is_manual() && self.own <= MAX_OWN))
            && (is_whole || taken.depth == asked);
        let next = |addresses: &[u64]| match addresses.get(self.same) {
            Some(address) => format!("{} addresses, then {address:#x}", self.same),
            None => format!("{} addresses", self.same),
        };
        (!is_right).then(|| Problem {
            check: "stack".into(),
            expected: next(&reference[..asked.min(reference.len())]),
            got: next(addresses),
            detail: "the last stack is not the one that bpf_get_stack() took of such an event"
                .into(),
        })
    }
}
