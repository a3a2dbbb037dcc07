//! Stacks that cross interrupts, exceptions and the stacks of tasks, in a guest with several CPUs.

use bpfcost_record::Status;

use crate::{kept, require, tool::Tool, visit::says_of_epochs};

/// Places whose stacks cross interrupts, exceptions and the stacks of tasks.
const PLACES: [&str; 4] = [
    "sys_enter",
    "local_timer_entry",
    "sched_switch",
    "netif_receive_skb",
];

/// Each event's stack is taken twice, and an address that differs would make its case invalid.
#[test]
fn stacks_of_interrupts_faults_and_threads_are_those_of_the_helper() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let cases: Vec<String> = (PLACES.iter())
        .flat_map(|place| [format!("none/{place}"), format!("{place}/frames")])
        .collect();
    // A guest has no disk: that is no fault of the case.
    let disk = ["none/block_rq_issue", "block_rq_issue/frames"];
    let mut cases: Vec<&str> = cases.iter().map(String::as_str).collect();
    cases.extend(disk);
    let tool = Tool::new();
    let globs: String = cases.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run stack-places{globs} --on vm:{kernel} --quick");
    says_of_epochs(&tool, &line, 2);
    let record = kept::record(&tool);
    for name in disk {
        let case = record.case(name).expect("a case");
        assert_eq!(
            case.status,
            Status::Unsupported,
            "{name}: {:?}",
            case.problems
        );
    }
    for name in cases.into_iter().filter(|name| !disk.contains(name)) {
        let case = record.case(name).expect("a case");
        assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
        let stacks: f64 = case.secondary["stacks"].concat().iter().sum();
        assert!(stacks > 0.0, "{name}");
    }
}
