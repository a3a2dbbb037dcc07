//! The checks of a batch of `attach`: as many runs as events, the traces of the body, no missed event.

use std::collections::BTreeMap;

use bpfcost_bpf::{
    attach::{Attach, BatchResult, Body, ProbeCounts, SiteCode, Trouble},
    stats::RunStats,
};

use super::case::AttachCase;
use bpfcost_model::{Batch, Problem, differs};
use bpfcost_pages::attach::{KERNEL_NS, MISSED, OTHER_FUNCTIONS};

/// Prefix of the names of values that report which instruction stood at a uprobe's site: `site_int3`, `site_call`,
/// `site_lea+call` or `site_jmp`, each with the value 1.
pub const SITE: &str = "site_";

/// All that a batch left.
#[derive(Clone, Debug)]
pub(super) struct AttachProof {
    pub(super) way: AttachCase,
    pub(super) driven: BatchResult,
    pub(super) seen: ProbeCounts,
    /// Number of items that the body left in its map, such as entries, or CPUs that wrote.
    pub(super) left: u64,
    /// Events that the mechanism says it missed.
    pub(super) missed: u64,
    /// The kernel's account of the runs.
    pub(super) stats: RunStats,
    /// Instruction placed at the site of a uprobe, before and after the batch; `None` for other mechanisms.
    pub(super) placed: Option<SiteCode>,
}

impl AttachProof {
    /// Returns the first problem of a batch, or `None` if it proves its operations.
    pub(super) fn problem(&self, batch: Batch) -> Option<Problem> {
        let driven = &self.driven;
        at_least("events", batch.0, driven.events)
            .or_else(|| {
                let moved = driven.elapsed_ns > 0.0;
                differs(
                    "clock moved",
                    true,
                    moved,
                    "the clock did not advance during the batch",
                )
            })
            .or_else(|| match self.way {
                AttachCase::Alone(_) => None,
                AttachCase::Program {
                    attach,
                    body,
                    stats,
                } => self.program(attach, body, stats),
            })
    }

    fn program(&self, attach: Attach, body: Body, stats: bool) -> Option<Problem> {
        let runs = self.driven.made * attach.runs_per_event();
        let seen = &self.seen;
        let everywhere = attach == Attach::KprobeMultiAll;
        differs("hits", runs, seen.hits, "the program did not run exactly once per event: there was another such event, or one was missed")
            .or_else(|| differs("ring buffer drops", 0, seen.drops, "the ring buffer was full"))
            .or_else(|| differs("errors of helpers", 0, seen.errors, "a helper call of the body failed"))
            .or_else(|| match body {
                Body::Empty => None,
                Body::Map => differs("CPUs that wrote", 1, self.left, "the body did not leave the expected result"),
                Body::Hash | Body::Ringbuf | Body::RingbufWakeup => {
                    differs("entries of the body's map", runs, self.left, "the body did not leave the expected result")
                }
                Body::Stack => differs("a stack was found", true, seen.stack_id >= 0 && self.left > 0, "the body did not leave the expected result"),
            })
            .or_else(|| {
                // Attached to all functions, some run inside others, and are skipped.
                let missed = if everywhere { 0 } else { self.missed };
                differs("missed events", 0, missed, "the mechanism reports that it missed events")
            })
            .or_else(|| {
                let missed = if everywhere { 0 } else { self.stats.recursion_misses };
                differs("recursions", 0, missed, "the program was called while it ran, and the kernel skipped that call")
            })
            .or_else(|| self.account(attach, stats, runs))
    }

    /// Checks the kernel's account of the runs, which it keeps only with `bpf_stats`.
    fn account(&self, attach: Attach, stats: bool, runs: u64) -> Option<Problem> {
        let counted = self.stats.run_cnt;
        let check = "runs that bpf_stats counted";
        match (stats, attach.sees_others()) {
            (false, _) => differs(
                check,
                0,
                counted,
                "another tool keeps bpf_stats on (bpftop, bpftool prog profile, …), and the cost includes it",
            ),
            (true, true) => at_least(check, runs, counted),
            (true, false) => differs(
                check,
                runs,
                counted,
                "bpf_stats counted other runs than these",
            ),
        }
    }

    /// Secondary values that the trial reports.
    pub(super) fn secondary(&self) -> BTreeMap<String, f64> {
        let mut values = BTreeMap::new();
        if let AttachCase::Program { attach, stats, .. } = self.way {
            if stats && !attach.sees_others() {
                let runs = self.stats.run_cnt.max(1) as f64;
                values.insert(KERNEL_NS.to_owned(), self.stats.run_time_ns as f64 / runs);
            }
            if attach == Attach::KprobeMultiAll {
                let an_event = |count: u64| count as f64 / self.driven.made.max(1) as f64;
                let missed = self.missed + self.stats.recursion_misses;
                values.insert(MISSED.to_owned(), an_event(missed));
                values.insert(OTHER_FUNCTIONS.to_owned(), an_event(self.seen.other_hits));
            }
        }
        if let Some(placed) = self.placed {
            values.insert(format!("{SITE}{}", placed.name()), 1.0);
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
        detail: "the program is not attached as the case requires".to_owned(),
    }
}

fn at_least(check: &str, expected: u64, got: u64) -> Option<Problem> {
    (got < expected).then(|| Problem {
        check: check.to_owned(),
        expected: format!("at least {expected}"),
        got: got.to_string(),
        detail: "the batch did not do its operations".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: u64 = 100;

    /// A batch that went well.
    fn good(attach: Attach, body: Body, stats: bool) -> AttachProof {
        let runs = EVENTS * attach.runs_per_event();
        AttachProof {
            way: AttachCase::Program {
                attach,
                body,
                stats,
            },
            driven: BatchResult {
                events: EVENTS,
                made: EVENTS,
                elapsed_ns: 5e3,
                ticks: 0,
                waits: 0,
                slices: Vec::new(),
            },
            seen: ProbeCounts {
                hits: runs,
                ..ProbeCounts::default()
            },
            left: match body {
                Body::Empty => 0,
                Body::Map => 1,
                Body::Stack => 2,
                Body::Hash | Body::Ringbuf | Body::RingbufWakeup => runs,
            },
            missed: 0,
            stats: RunStats {
                run_cnt: if stats { runs } else { 0 },
                run_time_ns: if stats { 20 * runs } else { 0 },
                recursion_misses: 0,
            },
            placed: None,
        }
    }

    fn check(proof: &AttachProof) -> Option<String> {
        proof.problem(Batch(EVENTS)).map(|problem| problem.check)
    }

    #[test]
    fn what_went_well_is_proved() {
        for attach in Attach::ALL {
            for body in Body::ALL {
                for stats in [false, true] {
                    assert_eq!(check(&good(attach, body, stats)), None, "{attach}/{body}");
                }
            }
        }
    }

    /// Each check fails for its own reason: one value that is not as it should be.
    #[test]
    fn each_fault_is_found() {
        let spoilt = |body: Body, stats: bool, spoil: fn(&mut AttachProof)| {
            let mut proof = good(Attach::Kprobe, body, stats);
            spoil(&mut proof);
            check(&proof).unwrap_or_default()
        };
        let empty = |spoil| spoilt(Body::Empty, false, spoil);
        assert_eq!(empty(|proof| proof.driven.events -= 1), "events");
        assert_eq!(empty(|proof| proof.driven.elapsed_ns = 0.0), "clock moved");
        assert_eq!(empty(|proof| proof.seen.hits -= 1), "hits");
        assert_eq!(empty(|proof| proof.seen.hits += 1), "hits");
        assert_eq!(empty(|proof| proof.seen.errors = 1), "errors of helpers");
        assert_eq!(empty(|proof| proof.missed = 1), "missed events");
        assert_eq!(
            empty(|proof| proof.stats.recursion_misses = 1),
            "recursions"
        );
        let account = "runs that bpf_stats counted";
        assert_eq!(empty(|proof| proof.stats.run_cnt = 1), account);
        assert_eq!(
            spoilt(Body::Empty, true, |proof| proof.stats.run_cnt -= 1),
            account
        );
        assert_eq!(
            spoilt(Body::Map, false, |proof| proof.left = 0),
            "CPUs that wrote"
        );
        let stack = |spoil| spoilt(Body::Stack, false, spoil);
        assert_eq!(stack(|proof| proof.left = 0), "a stack was found");
        assert_eq!(stack(|proof| proof.seen.stack_id = -1), "a stack was found");
        for body in [Body::Hash, Body::Ringbuf, Body::RingbufWakeup] {
            let check = spoilt(body, false, |proof| proof.left -= 1);
            assert_eq!(check, "entries of the body's map");
        }
        let dropped = spoilt(Body::Ringbuf, false, |proof| proof.seen.drops = 1);
        assert_eq!(dropped, "ring buffer drops");
    }

    /// A session runs twice an event; one run each would be half of what it means.
    #[test]
    fn sessions_run_twice() {
        let mut session = good(Attach::KprobeSession, Body::Empty, false);
        assert_eq!(session.seen.hits, 2 * EVENTS);
        session.seen.hits = EVENTS;
        assert_eq!(check(&session).as_deref(), Some("hits"));
    }

    /// Checks that a program attached to every function may miss calls of other functions, which it reports, but none
    /// of its target.
    #[test]
    fn misses_elsewhere_are_told() {
        let mut all = good(Attach::KprobeMultiAll, Body::Empty, false);
        all.missed = 3;
        all.stats.recursion_misses = 4;
        all.seen.other_hits = 5;
        assert_eq!(check(&all), None);
        let told = all.secondary();
        assert_eq!((told[MISSED], told[OTHER_FUNCTIONS]), (0.07, 0.05));
        all.seen.hits -= 1;
        assert_eq!(check(&all).as_deref(), Some("hits"));
    }

    #[test]
    fn the_instruction_at_a_site_is_named() {
        let mut proof = good(Attach::UprobeNop10, Body::Empty, false);
        for (placed, name) in SiteCode::ALL
            .into_iter()
            .zip(["int3", "call", "lea+call", "jmp"])
        {
            proof.placed = Some(placed);
            assert_eq!(proof.secondary(), [(format!("site_{name}"), 1.0)].into());
        }
    }

    #[test]
    fn the_kernels_own_figure_is_of_one_run() {
        let told = good(Attach::Fsession, Body::Empty, true).secondary();
        assert_eq!(told[KERNEL_NS], 20.0);
        assert!(
            good(Attach::Fsession, Body::Empty, false)
                .secondary()
                .is_empty()
        );
    }
}
