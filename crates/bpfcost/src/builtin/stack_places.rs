//! `stack-places`: what does a stack cost where events really are, and is the walk's stack the helper's there? Thirty
//! tracepoints and more: system calls, hard and soft interrupts, idle CPUs, kernel threads, page faults, block devices
//! and the network, while this process keeps the kernel busy (`stir.rs`).
//!
//! At each event a program takes the stack twice, by `unwind.bpf.h` and by `bpf_get_stack`, times one of them, and
//! compares: a case is invalid if one address of one stack differs. (Addresses of generated code that the kernel does not
//! list, other people's BPF trampolines for example, the helper leaves out: such stacks are counted as `unlisted`. Where both end at code without rules, at a retpoline
//! for example, they are counted as `ended`.) The value is nanoseconds of the timed take, which
//! goes first. Unlike in `stack`, each stack is another one, in caches as the event finds them.

mod stir;

use super::needs::needs;
use bpfcost_model::Need;
use std::{
    collections::BTreeMap,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bpfcost_bpf::{
    attach::{AttachMethod, Counter},
    unwind::{KernelSymbols, RuleTable, StackDifference, StackTruth, Timed, TruthCounts},
};

use self::stir::Stir;
use bpfcost_model::{
    Batch, Case, Description, Experiment, Fault, Grid, Layout, LoadedEpoch, Overhead, Pair,
    Problem, Role, Setup, Sizing, Trial, differs, prove,
};

/// Milliseconds of a trial.
const WINDOW_MS: u64 = 20;

/// A trial goes on until there were so many stacks, or for so many windows.
const MIN_STACKS: u64 = 8;
const MAX_WINDOWS: u32 = 25;

/// Tracepoints that only block devices come by.
const BLOCK: &str = "block:";

/// The tracepoints. A kernel need not have all of them.
const PLACES: [&str; 40] = [
    "block:block_bio_queue",
    "block:block_rq_complete",
    "block:block_rq_issue",
    "exceptions:page_fault_kernel",
    "exceptions:page_fault_user",
    "irq:irq_handler_entry",
    "irq:softirq_entry",
    "irq:softirq_raise",
    "irq_vectors:call_function_single_entry",
    "irq_vectors:local_timer_entry",
    "irq_vectors:reschedule_entry",
    "kmem:kfree",
    "kmem:kmalloc",
    "kmem:kmem_cache_alloc",
    "kmem:mm_page_alloc",
    "kmem:mm_page_free",
    "napi:napi_poll",
    "net:net_dev_queue",
    "net:net_dev_xmit",
    "net:netif_receive_skb",
    "net:netif_rx",
    "power:cpu_idle",
    "raw_syscalls:sys_enter",
    "raw_syscalls:sys_exit",
    "rcu:rcu_utilization",
    "sched:sched_migrate_task",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "sched:sched_process_fork",
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_waking",
    "signal:signal_deliver",
    "signal:signal_generate",
    "sock:inet_sock_set_state",
    "tcp:tcp_probe",
    "timer:hrtimer_expire_entry",
    "timer:timer_expire_entry",
    "workqueue:workqueue_execute_start",
    "workqueue:workqueue_queue_work",
];

/// Ways of taking a stack that are timed: the name in cases, the value for the program, the description.
const TAKERS: [(&str, Timed, &str); 3] = [
    ("none", Timed::Nothing, "two readings of the clock"),
    ("get_stack", Timed::Helper, "bpf_get_stack()"),
    ("frames", Timed::Walk, "unwind_frames()"),
];

/// The experiment.
#[derive(Debug, Default)]
pub struct StackPlaces;

/// Parameters of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PlaceCase {
    place: &'static str,
    taker: &'static str,
    timed: Timed,
    about: &'static str,
}

impl PlaceCase {
    fn all() -> impl Iterator<Item = PlaceCase> {
        PLACES.into_iter().flat_map(|place| {
            TAKERS.map(|(taker, timed, about)| PlaceCase {
                place,
                taker,
                timed,
                about,
            })
        })
    }

    fn from_case(case: &Case) -> Result<Self> {
        let named = |one: &PlaceCase| one.name() == case.name;
        PlaceCase::all()
            .find(named)
            .with_context(|| format!("stack-places has no case {}", case.name))
    }

    fn tracepoint(self) -> &'static str {
        self.place
            .split_once(':')
            .map_or(self.place, |(_, name)| name)
    }

    fn name(self) -> String {
        if self.timed == Timed::Nothing {
            format!("none/{}", self.tracepoint())
        } else {
            format!("{}/{}", self.tracepoint(), self.taker)
        }
    }

    fn case(self) -> Case {
        let is_floor = self.timed == Timed::Nothing;
        let mut factors = BTreeMap::from([("place".to_owned(), self.tracepoint().to_owned())]);
        if !is_floor {
            factors.insert("taker".to_owned(), self.taker.to_owned());
        }
        let floor = PlaceCase {
            timed: Timed::Nothing,
            ..self
        };
        Case {
            name: self.name(),
            group: self
                .place
                .split_once(':')
                .map_or("", |(group, _)| group)
                .to_owned(),
            factors,
            about: self.about.to_owned(),
            role: if is_floor { Role::Floor } else { Role::Case },
            floor: (!is_floor).then(|| floor.name()),
            sizing: Sizing::Window(WINDOW_MS),
            ..Case::default()
        }
    }
}

impl Experiment for StackPlaces {
    fn description(&self) -> Description {
        Description {
            layout: Layout::from(Grid {
                rows: "place".into(),
                columns: "taker".into(),
                net: "taking the whole stack of an event, minus two readings of the clock (its floor)".into(),
                floors: "Rows are of different events, with stacks of different depth.".into(),
                note: None,
            }),
            margin: 0.03,
            counts: false,
            host_files: true, // true(1) and sleep(1), to stir with
            every_cpu: true,
            overhead: Overhead {
                load_s: 0.5,
                trial_s: 0.01,
                batches: 2.0,
            },
            ..Description::new(
                "stack-places",
                "kernel stacks at 40 tracepoints of a busy system, each taken twice and compared",
                &[
                    ("place", "the tracepoint"),
                    ("taker", "what is timed: frames (unwind_frames(), by hand) or get_stack (the kernel's helper)"),
                ],
            )
        }
    }

    fn cases(&self) -> Vec<Case> {
        PlaceCase::all().map(PlaceCase::case).collect()
    }

    fn pairs(&self) -> Vec<Pair> {
        let walks = PlaceCase::all().filter(|case| case.timed == Timed::Walk);
        let pair = |case: PlaceCase| Pair {
            case: case.name(),
            baseline: format!("{}/get_stack", case.tracepoint()),
            about: format!("by hand against the helper, {}", case.tracepoint()),
        };
        walks.map(pair).collect()
    }

    fn needs(&self, _case: &Case) -> Vec<Need> {
        needs(StackTruth::needs(AttachMethod::RawTp))
    }

    fn unsupported(&self, case: &Case) -> Result<Option<String>> {
        if let Some(lacking) = self.missing(&self.needs(case))? {
            return Ok(Some(lacking));
        }
        let place = PlaceCase::from_case(case)?.place;
        if place.starts_with(BLOCK) && !stir::writes_to_disk() {
            return Ok(Some(
                "nothing comes by this tracepoint: the folder for temporary files is not on a block device".to_owned(),
            ));
        }
        Ok(Counter::absent(AttachMethod::RawTp, place)?)
    }

    fn load(&self, setup: &Setup) -> Result<Box<dyn LoadedEpoch>> {
        let rules = RuleTable::read(&KernelSymbols::read()?)?;
        let cases: Vec<PlaceCase> = setup
            .cases
            .iter()
            .map(PlaceCase::from_case)
            .collect::<Result<_>>()?;
        let first = cases.first().context("no case was chosen")?;
        Ok(Box::new(PlaceEpoch {
            truth: StackTruth::load(AttachMethod::RawTp, first.place, &rules)?,
            stir: Stir::start(&setup.cpus)?,
        }))
    }
}

struct PlaceEpoch {
    truth: StackTruth,
    stir: Stir,
}

impl LoadedEpoch for PlaceEpoch {
    /// Nothing: each trial attaches what it is about, and proves itself.
    fn prepare(&mut self, _case: &Case) -> Result<(), Fault> {
        Ok(())
    }

    fn trial(&mut self, case: &Case, batch: Batch) -> Result<Trial, Fault> {
        let case = PlaceCase::from_case(case)?;
        let lost_before = self.truth.counts()?.losses.lost;
        let attaching = Instant::now();
        self.truth
            .attach(case.place, case.timed)
            .map_err(anyhow::Error::from)?;
        let begun = Instant::now();
        let stirring = self.stir.on();
        for _ in 0..MAX_WINDOWS {
            sleep(Duration::from_millis(batch.0));
            if self.truth.counts()?.events >= MIN_STACKS {
                break;
            }
        }
        drop(stirring);
        let elapsed = begun.elapsed();
        let counts = self.truth.detach()?;
        prove(problem(&counts, attaching.elapsed()))?;
        let events = counts.events.max(1) as f64;
        Ok(Trial {
            value: counts.ns as f64 / events,
            ops: counts.events,
            elapsed_ns: elapsed.as_nanos() as f64,
            secondary: BTreeMap::from([
                ("frames".to_owned(), counts.frames as f64 / events),
                ("deepest".to_owned(), counts.deepest as f64),
                ("stacks".to_owned(), counts.events as f64),
                ("nested".to_owned(), counts.nested as f64),
                ("unlisted".to_owned(), counts.unlisted as f64),
                (
                    "ended".to_owned(),
                    (counts.losses.lost - lost_before) as f64,
                ),
            ]),
            ..Trial::default()
        })
    }

    fn kernel_bytes(&self) -> Option<u64> {
        Some(self.truth.kernel_bytes())
    }

    fn unload(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// Returns the first problem of the stacks of a trial, or `None`.
fn problem(counts: &TruthCounts, elapsed: Duration) -> Option<Problem> {
    let none = (counts.events == 0).then(|| Problem {
        check: "events".into(),
        expected: "at least 1 stack".into(),
        got: "0".into(),
        detail: "nothing came by this tracepoint in a second".into(),
    });
    let different = counts.differences.first().map(|difference| Problem {
        check: "stacks".into(),
        expected: format!("the helper's, in each of {} events", counts.events),
        got: format!(
            "another in {}; of one, {}",
            counts.different,
            first_difference(difference)
        ),
        detail: "the walk and the helper took different stacks of an event".into(),
    });
    none.or(different)
        .or_else(|| {
            differs(
                "different",
                0,
                counts.different,
                "stacks that differ, of which none was reported",
            )
        })
        .or_else(|| account(counts, elapsed, bpfcost_bpf::allowed_cpus().len() as u64))
}

/// Returns the first count that is out of its possible range. An event may be in progress on each CPU when counts are
/// read.
fn account(counts: &TruthCounts, elapsed: Duration, cpus: u64) -> Option<Problem> {
    let compared = counts.equal + counts.unlisted + counts.different;
    let most_ns = elapsed.as_nanos() as u64 * cpus;
    let ranges = [
        (
            "compared",
            compared,
            counts.events.saturating_sub(cpus),
            counts.events,
        ),
        ("ns", counts.ns, 1, most_ns),
        (
            "frames",
            counts.frames,
            counts.events.saturating_sub(cpus).max(1),
            u64::MAX,
        ),
        (
            "deepest",
            counts.deepest,
            counts.frames.div_ceil(counts.events.max(1)),
            counts.frames,
        ),
    ];
    let outside = ranges
        .into_iter()
        .find(|(_, got, least, most)| !(least..=most).contains(&got));
    outside.map(|(check, got, least, most)| Problem {
        check: check.into(),
        expected: format!("{least} to {most}, of {} events", counts.events),
        got: got.to_string(),
        detail: "the program counted wrongly, or a reading of the clock is missing".into(),
    })
}

/// Describes where two stacks begin to differ.
fn first_difference(stacks: &StackDifference) -> String {
    let own = stacks
        .walked
        .first()
        .and_then(|first| stacks.helper.iter().position(|address| address == first));
    let Some(own) = own else {
        return format!("the helper has no {:x?} of the walk", stacks.walked.first());
    };
    let helper = &stacks.helper[own..];
    let same = helper
        .iter()
        .zip(&stacks.walked)
        .take_while(|(one, other)| one == other)
        .count();
    format!(
        "{same} addresses are the same (the last {:x?}), then the walk has {:x?} and the helper {:x?}",
        same.checked_sub(1).and_then(|last| helper.get(last)),
        stacks.walked.get(same..).unwrap_or_default(),
        helper.get(same..).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_mean() {
        for (case, made) in PlaceCase::all().zip(StackPlaces.cases()) {
            assert_eq!(PlaceCase::from_case(&made).unwrap(), case, "{}", made.name);
        }
    }

    #[test]
    fn counts_that_cannot_be_are_invalid() {
        let good = || TruthCounts {
            events: 9,
            equal: 6,
            unlisted: 3,
            frames: 90,
            deepest: 12,
            ns: 900,
            ..TruthCounts::default()
        };
        let check = |change: fn(&mut TruthCounts)| {
            let mut counts = good();
            change(&mut counts);
            account(&counts, Duration::from_micros(1), 2).map(|one| one.check)
        };
        assert_eq!(check(|_| ()), None);
        assert_eq!(check(|one| one.equal = 0).as_deref(), Some("compared"));
        assert_eq!(check(|one| one.ns = 0).as_deref(), Some("ns"));
        assert_eq!(check(|one| one.ns = 2001).as_deref(), Some("ns"));
        assert_eq!(check(|one| one.frames = 0).as_deref(), Some("frames"));
        assert_eq!(check(|one| one.deepest = 0).as_deref(), Some("deepest"));
    }

    #[test]
    fn a_trial_with_another_stack_or_none_is_invalid() {
        let good = TruthCounts {
            events: 9,
            equal: 9,
            frames: 90,
            deepest: 12,
            ns: 900,
            ..TruthCounts::default()
        };
        let second = Duration::from_secs(1);
        let check = |counts: &TruthCounts| problem(counts, second).map(|one| one.check);
        assert_eq!(check(&good), None);
        assert_eq!(check(&TruthCounts::default()).as_deref(), Some("events"));
        let mut wrong = good;
        wrong.different = 1;
        assert_eq!(check(&wrong).as_deref(), Some("different"));
        wrong.differences.push(StackDifference {
            walked: vec![1, 2, 3],
            helper: vec![9, 1, 2, 4],
        });
        let problem = problem(&wrong, second).unwrap();
        assert_eq!(problem.check, "stacks");
        assert!(
            problem.got.contains("2 addresses are the same (the last Some(2)), then the walk has [3] and the helper [4]"),
            "{}",
            problem.got
        );
    }
}
