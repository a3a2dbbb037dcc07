//! No stack is lost unseen: up to a million distinct stacks (`bpf/stack_storm.bpf.c`), in a tree with room and in one
//! without, with a slow reader, by the helper, and on all CPUs with programs that interrupt each other. Always
//! events = counted + reported + lost.
//!
//! The tests use fewer stacks than a million. All of them, with figures:
//! `cargo test -p bpfcost-bpf --test stack_counter_full -- --ignored --nocapture`.

mod require;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::Duration,
};

use bpfcost_bpf::{
    allowed_cpus,
    attach::{AttachMethod, Driver, load_quietly, others},
    current_cpu,
    named::{NamedObject, OpenNamed},
    run::{self, SharedProgram},
    stack_counter::{StackCount, StackCounter, StackFilter, StackMode, StackTotals},
    unwind::{KernelSymbols, RuleTable},
};

const EVENT: (AttachMethod, &str) = (AttachMethod::RawTp, "bpf_trace:bpf_trace_printk");
/// Events that interrupt it.
const INTERRUPTS: [(AttachMethod, &str); 2] = [
    (AttachMethod::Tracepoint, "irq_vectors:local_timer_entry"),
    (AttachMethod::Tracepoint, "irq:softirq_entry"),
];

/// Distinct stacks of the tests that are always run. The helper has room for 65,536, the ring buffer for 7,700.
const STACKS: u64 = 20_000;
const MILLION: u64 = 1_000_000;
/// Paths over which each of the program's 64 outermost calls is made.
const ALL_OUTERMOST: u64 = 256;
/// The deepest stack that can be asked for.
const WHOLE: u32 = 127;
/// The most windows of stacks on all CPUs until one of their programs was interrupted by another.
const WINDOWS: u32 = 200;

/// Makes events with distinct stacks, in this process.
struct Storm {
    object: NamedObject,
    program: SharedProgram,
    /// Tests run at once in one process, whose events all of them count.
    _alone: MutexGuard<'static, ()>,
}

impl Storm {
    fn load() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let open = OpenNamed::open("stack_storm").expect("open");
        let others = || others(Driver::Printk).expect("who else listens");
        let before = others();
        let object = load_quietly(|| open.load()).expect("load");
        assert_eq!(others(), before);
        let program = object.runnable("storm").expect("a program");
        Storm {
            object,
            program,
            _alone: alone,
        }
    }

    fn begin(&mut self, paths: Range<u64>) {
        for (variable, path) in [("next_path", paths.start), ("last_path", paths.end)] {
            self.object
                .set_variable(variable, path)
                .expect("a variable");
        }
    }

    fn is_over(&self) -> bool {
        let path = |variable| self.object.variable(variable).expect("a variable");
        path("next_path") >= path("last_path")
    }

    /// Makes an event of each path; `between` is called every few hundred events.
    fn make(&mut self, paths: Range<u64>, mut between: impl FnMut()) {
        self.begin(paths);
        while !self.is_over() {
            run::on_cpu(&self.program, current_cpu(), &[]).expect("a run");
            between();
        }
    }

    /// The same on all CPUs at once.
    fn make_on_all(&mut self, paths: Range<u64>, mut meanwhile: impl FnMut()) {
        self.begin(paths);
        let storm = &*self;
        thread::scope(|scope| {
            let on = |cpu| {
                move || {
                    while !storm.is_over() {
                        run::on_cpu(&storm.program, cpu, &[]).expect("a run");
                    }
                }
            };
            let threads: Vec<_> = allowed_cpus()
                .into_iter()
                .map(|cpu| scope.spawn(on(cpu)))
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                meanwhile();
            }
        });
    }
}

fn rules() -> &'static RuleTable {
    static RULES: OnceLock<RuleTable> = OnceLock::new();
    RULES.get_or_init(|| {
        let symbols = KernelSymbols::read().expect("symbols");
        RuleTable::read(&symbols).expect("rules")
    })
}

fn start(events: &[(AttachMethod, &str)], mode: StackMode, depth: u32) -> StackCounter {
    let events: Vec<_> = events
        .iter()
        .map(|(method, event)| (*method, (*event).to_owned()))
        .collect();
    let filter = StackFilter {
        depth,
        process: Some(std::process::id()),
        command: None,
    };
    let rules = (mode != StackMode::Helper).then(rules);
    StackCounter::start(&events, mode, &filter, rules).expect("attached")
}

/// Addresses that tell the storm's stacks from each other: up to its outermost call.
fn distinct_depth(storm: &mut Storm, mode: StackMode) -> u32 {
    let counter = start(&[EVENT], mode, WHOLE);
    storm.make(0..ALL_OUTERMOST, || ());
    let outcome = Outcome::collect(counter);
    let stacks: Vec<&Vec<u64>> = outcome.stacks.keys().collect();
    let first = stacks[0];
    let differs = |at: &usize| stacks.iter().any(|stack| stack.get(*at) != first.get(*at));
    let outermost = (0..first.len()).rev().find(differs);
    outermost.expect("distinct stacks") as u32 + 1
}

/// Fate of the events, and the count of each stack.
struct Outcome {
    totals: StackTotals,
    stacks: BTreeMap<Vec<u64>, u64>,
    kernel_bytes: u64,
    nodes: u64,
}

impl Outcome {
    /// Ends it, and proves its account.
    #[track_caller]
    fn collect(mut counter: StackCounter) -> Self {
        counter.detach().expect("detached");
        counter.poll(Duration::ZERO).expect("read");
        let totals = counter.totals().expect("totals");
        let mut stacks = BTreeMap::new();
        for StackCount {
            addresses, count, ..
        } in counter.stacks().expect("stacks")
        {
            *stacks.entry(addresses).or_default() += count;
        }
        let accounted = totals.counted + totals.reported + totals.lost;
        assert_eq!(totals.events, accounted, "{totals:?}");
        let known: u64 = stacks.values().sum();
        assert_eq!(known, totals.counted + totals.reported, "{totals:?}");
        Outcome {
            totals,
            stacks,
            kernel_bytes: counter.kernel_bytes(),
            nodes: counter.nodes(),
        }
    }

    /// Proves a storm of distinct stacks: each was an event, and each that is known came once.
    #[track_caller]
    fn assert_distinct(&self, stacks: u64) {
        assert_eq!(self.totals.events, stacks, "{:?}", self.totals);
        assert_eq!(self.totals.missed, Some(0), "{:?}", self.totals);
        let often = self.stacks.iter().find(|(_, count)| **count != 1);
        assert_eq!(often, None, "{:?}", self.totals);
        let known = self.totals.counted + self.totals.reported;
        assert_eq!(self.stacks.len() as u64, known, "{:?}", self.totals);
    }
}

/// Counts so many distinct stacks: with so many free nodes where that is said, and a reader that keeps up or none.
fn count(
    storm: &mut Storm,
    (mode, depth): (StackMode, u32),
    stacks: u64,
    free: Option<u32>,
    reads: bool,
) -> Outcome {
    let mut counter = start(&[EVENT], mode, depth);
    if let Some(free) = free {
        counter.leave_nodes(free).expect("written");
    }
    storm.make(0..stacks, || {
        if reads {
            counter.poll(Duration::ZERO).expect("read");
        }
    });
    let outcome = Outcome::collect(counter);
    outcome.assert_distinct(stacks);
    outcome
}

#[test]
fn distinct_stacks_are_each_counted_or_reported() {
    if !require::host() {
        return;
    }
    let mut storm = Storm::load();
    let by_hand = (
        StackMode::Count,
        distinct_depth(&mut storm, StackMode::Count),
    );
    let with_room = count(&mut storm, by_hand, STACKS, None, false);
    assert_eq!(with_room.totals.counted, STACKS, "{:?}", with_room.totals);

    let full = count(&mut storm, by_hand, STACKS, Some(1_000), true);
    let totals = &full.totals;
    assert!(totals.counted > 0 && totals.reported > 0, "{totals:?}");
    assert_eq!(totals.lost, 0, "{totals:?}");
    assert_eq!(
        full.stacks.keys().collect::<BTreeSet<_>>(),
        with_room.stacks.keys().collect::<BTreeSet<_>>()
    );

    let unread = count(&mut storm, by_hand, STACKS, Some(1_000), false);
    let totals = &unread.totals;
    assert!(totals.reported > 5_000 && totals.lost > 0, "{totals:?}");
}

#[test]
fn the_helper_loses_stacks_and_that_is_counted() {
    if !require::host() {
        return;
    }
    let mut storm = Storm::load();
    let helper = (
        StackMode::Helper,
        distinct_depth(&mut storm, StackMode::Helper),
    );
    let outcome = count(&mut storm, helper, STACKS, None, false);
    let totals = &outcome.totals;
    assert!(
        totals.lost > 0 && totals.counted > totals.lost,
        "{totals:?}"
    );
}

/// Returns true if a stack leads through a program that was taking another one.
fn is_nested(symbols: &KernelSymbols, stack: &[u64]) -> bool {
    let names = stack.iter().filter_map(|address| symbols.symbol(*address));
    let mut of_bpf = names.filter(|symbol| symbol.module == Some("bpf"));
    of_bpf.any(|symbol| symbol.name.ends_with("_on_raw_tp") || symbol.name.contains("_unwind_"))
}

/// Each window's events come on all CPUs, in tasks, hard and soft interrupts. `free`: nodes of the tree.
fn nested_on_all_cpus(storm: &mut Storm, free: Option<u32>) {
    let events = [&[EVENT][..], &INTERRUPTS].concat();
    let mut nested = 0;
    for window in 0..WINDOWS {
        let mut counter = start(&events, StackMode::Count, WHOLE);
        let symbols = KernelSymbols::read().expect("symbols");
        if let Some(free) = free {
            counter.leave_nodes(free).expect("written");
        }
        storm.make_on_all(0..STACKS, || {
            counter.poll(Duration::from_millis(1)).expect("read");
        });
        let outcome = Outcome::collect(counter);
        let totals = &outcome.totals;
        // The rest came in interrupts.
        assert!(totals.events >= STACKS, "{totals:?}");
        assert!(free.is_none() || totals.reported > 0, "{totals:?}");
        let stacks = outcome.stacks.iter();
        let through = stacks.filter(|(stack, _)| is_nested(&symbols, stack));
        nested += through.map(|(_, count)| count).sum::<u64>();
        if nested > 0 {
            eprintln!(
                "{nested} stacks of nested programs in {} windows: {totals:?}",
                window + 1
            );
            return;
        }
    }
    panic!("no program was interrupted by another in {WINDOWS} windows");
}

#[test]
fn nested_events_on_all_cpus_are_accounted_for() {
    if !require::host() {
        return;
    }
    let mut storm = Storm::load();
    nested_on_all_cpus(&mut storm, None);
    nested_on_all_cpus(&mut storm, Some(1_000));
}

#[test]
#[ignore = "a million stacks, 1 GB: cargo test -p bpfcost-bpf --test stack_counter_full -- --ignored --nocapture"]
fn a_million_distinct_stacks() {
    if !require::host() {
        return;
    }
    let mut storm = Storm::load();
    let print = |what: &str, stacks: u64, outcome: &Outcome| {
        let totals = &outcome.totals;
        println!(
            "{what}, {stacks} stacks: counted {}, reported {}, lost {} ({:.1} %); {} nodes, {:.0} MB of maps",
            totals.counted,
            totals.reported,
            totals.lost,
            totals.lost as f64 / stacks as f64 * 100.0,
            outcome.nodes,
            outcome.kernel_bytes as f64 / 1e6
        );
    };
    let helper = (
        StackMode::Helper,
        distinct_depth(&mut storm, StackMode::Helper),
    );
    for stacks in [16_384, 65_536, 262_144, MILLION] {
        let outcome = count(&mut storm, helper, stacks, None, false);
        print("bpf_get_stackid", stacks, &outcome);
        assert!(outcome.totals.lost > 0);
    }
    let by_hand = (
        StackMode::Count,
        distinct_depth(&mut storm, StackMode::Count),
    );
    println!(
        "{} addresses by hand, {} by the helper",
        by_hand.1, helper.1
    );
    let outcome = count(&mut storm, by_hand, MILLION, None, true);
    print("by hand", MILLION, &outcome);
    assert_eq!(outcome.totals.lost, 0, "{:?}", outcome.totals);
    let outcome = count(&mut storm, by_hand, MILLION, Some(10_000), true);
    print("by hand, 10,000 nodes", MILLION, &outcome);
    assert_eq!(outcome.totals.lost, 0, "{:?}", outcome.totals);
    let outcome = count(&mut storm, by_hand, MILLION, Some(10_000), false);
    print("by hand, 10,000 nodes, no reader", MILLION, &outcome);
    assert!(outcome.totals.lost > 0, "{:?}", outcome.totals);
}
