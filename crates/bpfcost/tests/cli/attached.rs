//! `attach` on this host, killed and interrupted: nothing stays attached, no namespace, no control group, no
//! setting; and mistakes have answers.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bpfcost_process::wait_until;

use crate::{
    require,
    running::{Held, Running},
    tool::Tool,
};

/// A bit of all that a run makes: links of every kind, a namespace, a control group, a perf event, bpf_stats,
/// the tracepoint of bpf_trace_printk.
const LINE: &str = "run attach --case raw_tp/empty* --case raw_tp-printk/empty --case uprobe-nop/empty \
                    --case cgroup_skb/* --case xdp-native/empty --case perf_event/* --seed 3 --quick";

/// The control groups of this tool that no process holds locked, wherever the second version is mounted.
fn left_groups() -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let places = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(place))
    });
    places
        .flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let free = || File::open(path).is_ok_and(|folder| folder.try_lock().is_ok());
            name.starts_with("bpfcost-") && free()
        })
        .collect()
}

/// One that is being made or removed by another test is free for a moment.
#[track_caller]
fn assert_no_group_is_left() {
    let (limit, step) = (Duration::from_secs(5), Duration::from_millis(20));
    let none_is_left = wait_until(limit, step, || left_groups().is_empty());
    assert!(none_is_left, "{:?}", left_groups());
}

/// One test at a time: they would see each other at the same events.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A run that has attached, and measured with, much of what it is made of; and what it holds.
fn under_way(tool: &Tool) -> (Running, Held) {
    let mut run = Running::start(tool, LINE);
    run.until(|journal| journal.matches("\"trial\"").count() > 30);
    let held = run.until_it_holds();
    (run, held)
}

#[test]
fn a_killed_run_leaves_nothing_attached() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let (mut run, held) = under_way(&tool);
    run.kill();
    held.assert_freed();
    // What a kill leaves of control groups is an empty folder, which the next run removes. That run's cases
    // without bpf_stats prove that it is off, and all of them that no other process is at their events.
    tool.answers("run --resume x.json --format json");
    assert_no_group_is_left();
}

#[test]
fn an_interrupted_run_leaves_nothing_attached() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let (mut run, held) = under_way(&tool);
    run.signal("INT");
    let said = run.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    held.assert_freed();
    assert_no_group_is_left();
    assert!(said.out.contains("attach on host"), "{said:?}");
}

#[test]
fn what_is_not_here_says_why_and_where_it_is() {
    let _turn = alone();
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = tool.says(
        "run attach --case fentry/* --case fsession/empty --case raw_tp/empty --quick --out x.json",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    // Either this kernel has them, or the reasons are printed.
    for way in ["fentry", "fsession"] {
        assert!(said.out.contains(way), "{way}: {}", said.out);
    }
}

#[test]
fn more_cpus_than_one_are_refused_at_once() {
    let tool = Tool::new();
    if bpfcost_bpf::allowed_cpus().len() > 1 {
        let said = tool.says("run attach --cpus 0,1 --dry-run");
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(
            said.err.contains("one CPU") || said.err.contains("1 CPU"),
            "{said:?}"
        );
    }
}
