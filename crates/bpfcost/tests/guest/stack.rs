//! Kernel stacks without the helper: on three kernels each stack is the helper's, and taking it costs a fraction of
//! the helper's instructions.

use bpfcost::record::{Record, Status};

use crate::{kept::valid_record, require, tool::Tool, visit::says};

/// What is compared, by how the program is attached.
const CASES: [&str; 12] = [
    "none/raw_tp",
    "none/kprobe",
    "none/fentry",
    "count/*",
    "get_stack/*",
    "get_stack+ring/*",
    "frames+ring/*",
    "get_stack@kprobe/16",
    "count@kprobe/16",
    "frames@kprobe/16",
    "get_stack@fentry/16",
    "count@fentry/16",
];

/// Places whose stacks cross interrupts, exceptions and the stacks of tasks.
const PLACES: [&str; 7] = [
    "sys_enter",
    "page_fault_user",
    "local_timer_entry",
    "softirq_entry",
    "sched_switch",
    "netif_receive_skb",
    "workqueue_execute_start",
];

fn record(line: &str, cases: &[&str]) -> Record {
    let tool = Tool::new();
    let globs: String = cases.iter().map(|glob| format!(" --case {glob}")).collect();
    let said = says(&tool, &format!("{line}{globs} --quick"), "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    valid_record(&tool)
}

fn net(record: &Record, name: &str) -> f64 {
    let case = record.case(name).expect("a case");
    assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
    case.net.as_ref().expect("a net count").value
}

/// Every case is proved: its stack is the one that the helper takes of the same event.
#[track_caller]
fn costs_less(kernel: &str, count_share: f64, frames_share: f64) {
    let record = record(&format!("run stack --on exact:{kernel}"), &CASES);
    for depth in ["8", "16", "32", "whole"] {
        let share = |by: &str, of: &str| {
            net(&record, &format!("{by}/{depth}")) / net(&record, &format!("{of}/{depth}"))
        };
        let (count, frames) = (
            share("count", "get_stack"),
            share("frames+ring", "get_stack+ring"),
        );
        assert!(count <= count_share, "{kernel}, depth {depth}: {count}");
        assert!(frames <= frames_share, "{kernel}, depth {depth}: {frames}");
    }
    for attach in ["kprobe", "fentry"] {
        let share = net(&record, &format!("count@{attach}/16"))
            / net(&record, &format!("get_stack@{attach}/16"));
        assert!(share <= count_share * 1.3, "{kernel}, {attach}: {share}");
    }
}

#[test]
fn a_stack_on_linux_6_12_costs_a_tenth_of_the_helper() {
    if require::version("6.12", "trixie") {
        costs_less("6.12", 0.10, 0.16);
    }
}

/// Its loads are calls of a helper, for there is no bpf_rdonly_cast.
#[test]
fn a_stack_on_linux_6_1_costs_less_than_a_third() {
    if require::version("6.1", "bookworm") {
        costs_less("6.1", 0.3, 0.33);
    }
}

/// Its ORC tables have other numbers of registers.
#[test]
fn a_stack_on_the_newest_linux_costs_a_tenth_of_the_helper() {
    if require::version("sid", "sid") {
        costs_less("sid", 0.11, 0.16);
    }
}

/// Each event's stack is taken twice, and an address that differs would make its case invalid.
#[test]
fn stacks_of_interrupts_faults_and_threads_are_those_of_the_helper() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let cases: Vec<String> = (PLACES.iter())
        .flat_map(|place| [format!("none/{place}"), format!("{place}/frames")])
        .collect();
    let cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    let record = record(&format!("run stack-places --on vm:{kernel}"), &cases);
    for name in cases {
        let case = record.case(name).expect("a case");
        assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
        let stacks: f64 = case.secondary["stacks"].concat().iter().sum();
        assert!(stacks > 0.0, "{name}");
    }
}
