//! What must come of a batch: as many runs as events, each body's traces, nothing missed.

use std::collections::BTreeMap;

use bpfcost_bpf::{
    attach::{Attach, Body, Driven, Seen, Trouble},
    stats::RunStats,
};

use super::case::Way;
use crate::experiment::{Batch, Problem};

/// Nanoseconds a run by the kernel's own account, where `bpf_stats` is on.
const KERNEL_NS: &str = "kernel_ns";
/// Events that the mechanism says it missed.
const MISSED: &str = "missed";
/// Runs for functions other than the target, where all are attached to.
const STRANGERS: &str = "other_functions";

/// All that a batch left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    pub(super) way: Way,
    pub(super) driven: Driven,
    pub(super) exact: bool,
    pub(super) seen: Seen,
    /// What the body's map held.
    pub(super) left: u64,
    /// Events that the mechanism says it missed.
    pub(super) missed: u64,
    /// The kernel's account of the runs.
    pub(super) stats: RunStats,
}

impl Proof {
    /// What is wrong, if anything is.
    pub(super) fn problem(&self, batch: Batch) -> Option<Problem> {
        let driven = &self.driven;
        at_least("events", batch.0, driven.events)
            .or_else(|| {
                let moved = driven.elapsed_ns > 0.0;
                differs("clock moved", true, moved, "the batch took no time by its clock")
            })
            .or_else(|| {
                let waits = if self.exact { driven.waits } else { 0 };
                differs("waits", 0, waits, "the thread that makes the events gave up its CPU, and the clock may have leapt")
            })
            .or_else(|| match self.way {
                Way::Alone(_) => None,
                Way::Program { attach, body, stats } => self.program(attach, body, stats),
            })
    }

    fn program(&self, attach: Attach, body: Body, stats: bool) -> Option<Problem> {
        let runs = self.driven.made * attach.runs_per_event();
        let seen = &self.seen;
        let everywhere = attach == Attach::KprobeMultiAll;
        differs("hits", runs, seen.hits, "the program did not run once for each event: another event of its kind came, or one was missed")
            .or_else(|| differs("ring buffer drops", 0, seen.drops, "the ring buffer was full"))
            .or_else(|| differs("errors of helpers", 0, seen.errors, "a helper refused what the body asked of it"))
            .or_else(|| match body {
                Body::Empty => None,
                Body::Map => differs("CPUs that wrote", 1, self.left, "the body did not leave what it should"),
                Body::Hash | Body::Ringbuf | Body::RingbufWakeup => {
                    differs("entries of the body's map", runs, self.left, "the body did not leave what it should")
                }
                Body::Stack => at_least("stacks", 1, self.left),
            })
            .or_else(|| {
                // Attached to all functions, some run inside others, and are passed over.
                let missed = if everywhere { 0 } else { self.missed };
                differs("missed events", 0, missed, "the mechanism itself says that it passed over events")
            })
            .or_else(|| {
                let missed = if everywhere { 0 } else { self.stats.recursion_misses };
                differs("recursions", 0, missed, "the program was called while it ran, and the kernel passed over that")
            })
            .or_else(|| match stats {
                true => differs("runs that bpf_stats counted", runs + seen.strangers, self.stats.run_cnt, "the kernel's account is of other runs than these"),
                false => differs("runs that bpf_stats counted", 0, self.stats.run_cnt, "somebody keeps bpf_stats on (bpftop, bpftool prog profile, …), and it is part of the cost"),
            })
    }

    /// What else the trial tells.
    pub(super) fn secondary(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        if let Way::Program { attach, stats, .. } = self.way {
            if stats {
                let runs = self.stats.run_cnt.max(1) as f64;
                values.insert(KERNEL_NS.to_owned(), self.stats.run_time_ns as f64 / runs);
            }
            if attach == Attach::KprobeMultiAll {
                let missed = self.missed + self.stats.recursion_misses;
                values.insert(MISSED.to_owned(), missed as f64);
                values.insert(STRANGERS.to_owned(), self.seen.strangers as f64);
            }
        }
        values
    }
}

/// A program that is not attached as its case means.
pub(super) fn trouble(trouble: &Trouble) -> Problem {
    Problem {
        check: trouble.check.to_owned(),
        expected: trouble.expected.clone(),
        got: trouble.got.clone(),
        detail: "the program is not attached in the way that the case is about".to_owned(),
    }
}

fn differs<T: PartialEq + ToString>(
    check: &str,
    expected: T,
    got: T,
    detail: &str,
) -> Option<Problem> {
    (expected != got).then(|| Problem {
        check: check.to_owned(),
        expected: expected.to_string(),
        got: got.to_string(),
        detail: detail.to_owned(),
    })
}

fn at_least(check: &str, expected: u64, got: u64) -> Option<Problem> {
    (got < expected).then(|| Problem {
        check: check.to_owned(),
        expected: format!("at least {expected}"),
        got: got.to_string(),
        detail: "the batch did not do what its number would stand for".to_owned(),
    })
}
