//! Every event is accounted for, also where the tree of contexts is full, and the ring buffer too. The events are the
//! system calls of a `dd`, which begins when it may.

mod require;

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use bpfcost_bpf::{
    attach::AttachMethod,
    stack_counter::{StackCounter, StackFilter, StackMode, StackTotals},
    unwind::{KernelSymbols, RuleTable},
};

/// Far more nodes than the stacks of system calls have.
const PLENTY: u32 = 10_000;

/// A `dd` that copies so many blocks once it is told to. Until then its process is a shell, which is left out by name.
fn copier(blocks: usize) -> Child {
    let dd = format!("exec dd if=/dev/zero of=/dev/null bs=1 status=none count={blocks}");
    Command::new("sh")
        .args(["-c", &format!("read -r _ && {dd}")])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts")
}

fn copy(mut child: Child) {
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"go\n").expect("it reads");
    drop(input);
    assert!(child.wait().expect("a child").success());
}

/// Fate of the events, and the count of each stack.
struct Outcome {
    totals: StackTotals,
    stacks: BTreeMap<Vec<u64>, u64>,
}

impl Outcome {
    fn sum(&self) -> u64 {
        self.stacks.values().sum()
    }

    #[track_caller]
    fn assert_accounted(&self) {
        let totals = &self.totals;
        let accounted = totals.counted + totals.reported + totals.lost;
        assert_eq!(totals.events, accounted, "{totals:?}");
        assert_eq!(totals.missed, Some(0), "{totals:?}");
    }
}

/// The system calls of a `dd`, with so many free nodes.
fn system_calls(mode: StackMode, free: u32, blocks: usize, depth: u32) -> Outcome {
    static RULES: OnceLock<RuleTable> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let symbols = KernelSymbols::read().expect("symbols");
        RuleTable::read(&symbols).expect("rules")
    });
    let child = copier(blocks);
    let event = (AttachMethod::RawTp, "raw_syscalls:sys_enter".to_owned());
    let filter = StackFilter {
        depth,
        process: Some(child.id()),
        command: Some("dd".to_owned()),
    };
    let rules = (mode != StackMode::Helper).then_some(rules);
    let mut counter = StackCounter::start(&[event], mode, &filter, rules).expect("attached");
    if rules.is_some() {
        counter.leave_nodes(free).expect("written");
    }
    copy(child);
    counter.detach().expect("detached");
    let mut stacks = BTreeMap::new();
    loop {
        let reports = counter.poll(Duration::ZERO).expect("read");
        if reports.is_empty() {
            break;
        }
        for report in reports {
            assert_eq!(report.command, "dd");
            *stacks.entry(report.addresses.to_vec()).or_default() += 1;
        }
    }
    // In the other modes, records are counted among the stacks.
    if mode != StackMode::Events {
        for stack in counter.stacks().expect("stacks") {
            *stacks.entry(stack.addresses).or_default() += stack.count;
        }
    }
    let totals = counter.totals().expect("totals");
    Outcome { totals, stacks }
}

#[test]
fn a_full_tree_reports_whole_stacks() {
    if !require::host() {
        return;
    }
    const BLOCKS: usize = 500;
    let with_room = system_calls(StackMode::Count, PLENTY, BLOCKS, 127);
    with_room.assert_accounted();
    let totals = &with_room.totals;
    // A read and a write for each block, and a few more.
    assert!(totals.counted >= 2 * BLOCKS as u64, "{totals:?}");
    assert_eq!((totals.reported, totals.lost), (0, 0), "{totals:?}");
    assert_eq!(with_room.sum(), totals.events, "{:?}", with_room.stacks);
    for free in [0, 2] {
        let full = system_calls(StackMode::Count, free, BLOCKS, 127);
        full.assert_accounted();
        let totals = &full.totals;
        assert!(totals.reported >= 2 * BLOCKS as u64, "{totals:?}");
        assert_eq!((totals.counted, totals.lost), (0, 0), "{totals:?}");
        assert_eq!(full.sum(), totals.events, "{:?}", full.stacks);
        // They are the same stacks from the tracepoint on. Within it, the way to the program is another where others
        // are attached too.
        let most = |outcome: &Outcome| {
            let most = outcome.stacks.iter().max_by_key(|(_, count)| **count);
            most.and_then(|(stack, _)| stack.last_chunk::<3>().copied())
        };
        assert_ne!(most(&full), None);
        assert_eq!(most(&full), most(&with_room), "{free} free nodes");
    }
}

#[test]
fn a_stack_that_fits_into_the_last_nodes_is_counted() {
    if !require::host() {
        return;
    }
    let fits = system_calls(StackMode::Count, 2, 10, 2);
    fits.assert_accounted();
    assert_eq!(fits.totals.counted, fits.totals.events, "{:?}", fits.totals);
    assert_eq!(fits.sum(), fits.totals.events);
}

/// The ring buffer has 8 MiB, which is room for some 7,700 stacks with their addresses, and 150,000 events without.
#[test]
fn a_reader_that_is_slower_than_its_writer_loses_events_that_are_counted() {
    if !require::host() {
        return;
    }
    let slow = system_calls(StackMode::Count, 0, 5_000, 127);
    slow.assert_accounted();
    let totals = &slow.totals;
    assert!(totals.lost > 0 && totals.reported > 5_000, "{totals:?}");
    assert_eq!(slow.sum(), totals.reported, "{totals:?}");

    let slow = system_calls(StackMode::Events, PLENTY, 80_000, 127);
    slow.assert_accounted();
    let totals = &slow.totals;
    assert!(totals.lost > 0 && totals.reported > 50_000, "{totals:?}");
    assert_eq!(totals.counted, 0, "{totals:?}");
    assert_eq!(slow.sum(), totals.reported, "{totals:?}");
}

#[test]
fn the_helper_is_accounted_for_too() {
    if !require::host() {
        return;
    }
    let helper = system_calls(StackMode::Helper, 0, 500, 3);
    helper.assert_accounted();
    assert_eq!(helper.totals.reported, 0);
    assert_eq!(helper.sum(), helper.totals.counted);
    assert!(helper.stacks.keys().all(|stack| stack.len() <= 3));
}
