//! The checks of a batch of `kretprobe`: the program ran for every call, or the kernel counted the call as missed;
//! and calls were missed only because no instance was free.

use std::{collections::BTreeMap, ops::RangeInclusive};

use bpfcost_bpf::attach::{AttachMethod, HitCounts};

use bpfcost_model::{Batch, Problem, Trial, differs};
use bpfcost_record::MISSED_SHARE;
use bpfcost_threads::call::{CallResult, Syscall};

/// Calls per second of all threads together.
pub(super) const CALLS_PER_S: &str = "calls_per_s";
/// Share of the calls that the program saw.
const HITS: &str = "hits";

/// All that a batch left.
#[derive(Clone, Copy, Debug)]
pub(super) struct KretprobeProof {
    pub(super) call: Syscall,
    pub(super) threads: u32,
    pub(super) made: CallResult,
    /// Attach method of the program, and the counts of the program and of the kernel; `None` if nothing was attached.
    pub(super) probed: Option<(AttachMethod, HitCounts)>,
}

impl KretprobeProof {
    /// Returns the first problem of a batch, or `None` if its counts account for all calls.
    pub(super) fn problem(&self, batch: Batch) -> Option<Problem> {
        let made = &self.made;
        let rounds = match self.call {
            Syscall::Flock => 0,
            Syscall::Sleep => batch.0,
        };
        differs(
            "calls",
            u64::from(self.threads) * batch.0,
            made.calls,
            "a call failed, or a thread did not finish",
        )
        .or_else(|| {
            differs(
                "rounds in which all threads slept at once",
                rounds,
                made.rounds,
                "a thread did not arrive in time; the machine may be too busy",
            )
        })
        .or_else(|| {
            let moved = !made.elapsed.is_zero();
            differs(
                "clock moved",
                true,
                moved,
                "the clock did not advance during the batch",
            )
        })
        .or_else(|| {
            self.probed
                .and_then(|(method, counts)| self.accounted(method, counts, batch))
        })
    }

    /// Checks that the program's hits and the kernel's misses account for all calls.
    fn accounted(&self, method: AttachMethod, counts: HitCounts, batch: Batch) -> Option<Problem> {
        let calls = self.made.calls;
        let missed = calls.saturating_sub(counts.hits);
        let alone = counts.other_hits == 0;
        within("hits", 0..=calls, counts.hits, "the program ran more often than there were calls")
            .or_else(|| {
                let Some(reported) = counts.missed else {
                    return within("hits", 1..=calls, counts.hits, "the program never ran, and this kernel does not report misses, which might explain it");
                };
                if alone {
                    differs("hits and misses, in sum", calls, counts.hits + reported, "the kernel reports another number of misses; another process may call the function too")
                } else {
                    // Some of the misses may be theirs.
                    within("misses that the kernel reports", missed..=u64::MAX, reported, "there were more misses")
                }
            })
            .or_else(|| {
                let expected = self.expected(method, batch).filter(|_| alone)?;
                within("misses", expected, missed, "a call may be missed only while all instances are in use")
            })
    }

    /// Returns how many calls the probe must miss; `None` if that is unknown. Other processes may hold instances too.
    fn expected(&self, method: AttachMethod, batch: Batch) -> Option<RangeInclusive<u64>> {
        let AttachMethod::Kretprobe { maxactive } = method else {
            // A kprobe keeps nothing. How many instances the others have is the kernel's own choice.
            return (method == AttachMethod::Kprobe).then_some(0..=0);
        };
        // A thread preempted inside the call keeps its instance: fewer instances than threads may not suffice.
        let lacking = u64::from(self.threads.saturating_sub(maxactive));
        match self.call {
            _ if lacking == 0 => Some(0..=0),
            Syscall::Flock => None,
            Syscall::Sleep => Some(lacking * batch.0..=lacking * batch.0),
        }
    }

    /// The trial, once it is proved.
    pub(super) fn trial(&self, batch: Batch) -> Trial {
        let elapsed_ns = self.made.elapsed.as_nanos() as f64;
        let calls = self.made.calls as f64;
        let mut secondary = BTreeMap::from([(CALLS_PER_S.to_owned(), calls / elapsed_ns * 1e9)]);
        if let Some((_, counts)) = self.probed {
            let hits = counts.hits as f64 / calls;
            secondary.insert(HITS.to_owned(), hits);
            secondary.insert(MISSED_SHARE.to_owned(), 1.0 - hits);
        }
        Trial::of_batch(batch, elapsed_ns, secondary)
    }
}

fn within(check: &str, expected: RangeInclusive<u64>, got: u64, detail: &str) -> Option<Problem> {
    let words = match (expected.start(), expected.end()) {
        (low, high) if low == high => low.to_string(),
        (0, high) => format!("at most {high}"),
        (low, _) => format!("at least {low}"),
    };
    (!expected.contains(&got)).then(|| Problem {
        check: check.to_owned(),
        expected: words,
        got: got.to_string(),
        detail: detail.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BATCH: Batch = Batch(10);

    /// A batch of eight threads that went well: where instances are too few, the rest is missed each time.
    fn good(call: Syscall, method: AttachMethod) -> KretprobeProof {
        let calls = 8 * BATCH.0;
        let missed = match (call, method) {
            (Syscall::Sleep, AttachMethod::Kretprobe { maxactive }) if maxactive < 8 => {
                u64::from(8 - maxactive) * BATCH.0
            }
            _ => 0,
        };
        KretprobeProof {
            call,
            threads: 8,
            made: CallResult {
                calls,
                rounds: if call == Syscall::Sleep { BATCH.0 } else { 0 },
                elapsed: Duration::from_millis(1),
            },
            probed: Some((
                method,
                HitCounts {
                    hits: calls - missed,
                    other_hits: 0,
                    missed: Some(missed),
                    ..HitCounts::default()
                },
            )),
        }
    }

    fn check(proof: &KretprobeProof) -> Option<String> {
        proof.problem(BATCH).map(|problem| problem.check)
    }

    fn kretprobe(maxactive: u32) -> AttachMethod {
        AttachMethod::Kretprobe { maxactive }
    }

    #[test]
    fn what_went_well_is_proved() {
        let methods = [
            AttachMethod::Kprobe,
            AttachMethod::KretprobeMulti,
            AttachMethod::Fexit,
        ];
        for method in methods.into_iter().chain([2, 4, 8].map(kretprobe)) {
            for call in Syscall::ALL {
                assert_eq!(check(&good(call, method)), None, "{method:?} {call:?}");
            }
        }
        let alone = KretprobeProof {
            probed: None,
            ..good(Syscall::Flock, AttachMethod::Kprobe)
        };
        assert_eq!(check(&alone), None);
        assert_eq!(alone.trial(BATCH).secondary.len(), 1);
    }

    /// A batch with its counts changed: what is found.
    fn spoilt(
        call: Syscall,
        method: AttachMethod,
        spoil: fn(&mut KretprobeProof, &mut HitCounts),
    ) -> String {
        let mut proof = good(call, method);
        let (_, mut counts) = proof.probed.expect("counts");
        spoil(&mut proof, &mut counts);
        proof.probed = Some((method, counts));
        check(&proof).unwrap_or_default()
    }

    /// Calls that are missed, and counted as missed.
    fn miss(counts: &mut HitCounts, calls: u64) {
        counts.hits -= calls;
        counts.missed = counts.missed.map(|missed| missed + calls);
    }

    #[test]
    fn each_fault_is_found() {
        let flock = |spoil| spoilt(Syscall::Flock, kretprobe(8), spoil);
        assert_eq!(flock(|proof, _| proof.made.calls -= 1), "calls");
        assert_eq!(
            flock(|proof, _| proof.made.elapsed = Duration::ZERO),
            "clock moved"
        );
        assert_eq!(flock(|_, counts| counts.hits += 1), "hits");
        let sum = "hits and misses, in sum";
        assert_eq!(flock(|_, counts| counts.hits -= 1), sum);
        assert_eq!(flock(|_, counts| counts.missed = Some(1)), sum);
        assert_eq!(flock(|_, counts| miss(counts, 1)), "misses");
        let asleep = |spoil| spoilt(Syscall::Sleep, kretprobe(2), spoil);
        assert_eq!(
            asleep(|proof, _| proof.made.rounds -= 1),
            "rounds in which all threads slept at once"
        );
        assert_eq!(asleep(|_, counts| miss(counts, 1)), "misses");
        let too_few = |_: &mut KretprobeProof, counts: &mut HitCounts| {
            counts.hits += 1;
            counts.missed = counts.missed.map(|missed| missed - 1);
        };
        assert_eq!(asleep(too_few), "misses");
        let kprobe = spoilt(Syscall::Flock, AttachMethod::Kprobe, |_, counts| {
            miss(counts, 1)
        });
        assert_eq!(kprobe, "misses");
    }

    /// Threads that are preempted inside flock(2) keep their instances, so that others may find none.
    #[test]
    fn a_quick_call_may_be_missed_where_instances_are_fewer_than_threads() {
        let missed = |method| spoilt(Syscall::Flock, method, |_, counts| miss(counts, 3));
        assert_eq!(missed(kretprobe(4)), "");
        assert_eq!(missed(AttachMethod::KretprobeMulti), "");
        assert_eq!(missed(kretprobe(8)), "misses");
    }

    /// Checks that calls of other processes neither prove nor fail a batch, except that the misses must cover our own.
    #[test]
    fn strangers_are_told_apart() {
        let seen = |spoil| spoilt(Syscall::Sleep, kretprobe(2), spoil);
        let more = |_: &mut KretprobeProof, counts: &mut HitCounts| {
            counts.other_hits = 1;
            miss(counts, 5);
            counts.missed = counts.missed.map(|missed| missed + 7);
        };
        assert_eq!(seen(more), "");
        let untold = |_: &mut KretprobeProof, counts: &mut HitCounts| {
            counts.other_hits = 1;
            counts.hits -= 1;
        };
        assert_eq!(seen(untold), "misses that the kernel reports");
    }

    /// A kernel that does not say what it missed can't be contradicted, unless all was.
    #[test]
    fn misses_that_are_not_told_are_what_was_not_seen() {
        let mut proof = good(Syscall::Sleep, AttachMethod::KretprobeMulti);
        let calls = proof.made.calls;
        let mut saw = |hits, strangers| {
            let counts = HitCounts {
                hits,
                other_hits: strangers,
                missed: None,
                ..HitCounts::default()
            };
            proof.probed = Some((AttachMethod::KretprobeMulti, counts));
            proof
        };
        let some = saw(calls / 4, 0);
        assert_eq!(check(&some), None);
        assert_eq!(some.trial(BATCH).secondary[MISSED_SHARE], 0.75);
        for strangers in [0, 5] {
            let never = saw(0, strangers).problem(BATCH).expect("a problem");
            assert_eq!(never.check, "hits");
            assert!(never.detail.contains("does not report"), "{never:?}");
        }
    }
}
