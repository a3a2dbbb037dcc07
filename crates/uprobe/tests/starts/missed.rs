//! Forked children whose calls are missed because of a tool, and how long.

use super::{FILE, common, open, tool};
use bpfcost_uprobe::process::{Counts, Runtime};
use common::{Binary, Target, attach_at_entry, wait_until};

/// As an arena does that the kernel does not copy for children.
fn close_to_children(pid: i32) -> Runtime {
    let mut runtime = Runtime::open(pid).unwrap();
    runtime.follow_children().unwrap();
    // Nothing is mapped there.
    runtime.close_to_children_without(0).unwrap();
    runtime
}

/// Returns what a tool counts of one call of the process, one of its child and one of the child's. `then` is before they are
/// forked.
fn count(process: &mut Target, then: impl FnOnce()) -> Counts {
    let mut probes = open();
    probes.follow_children();
    let pid = process.pid();
    let attached = attach_at_entry(&mut probes, pid, "count", "work").unwrap();
    then();
    process.send("fork");
    assert_eq!(process.line(), "forked");
    process.send("call");
    assert_eq!(process.line(), "called");
    probes.detach(attached).unwrap().entry
}

const ALL: Counts = Counts { hits: 3, missed: 0 };
const NO_CHILDREN: Counts = Counts { hits: 1, missed: 2 };

#[test]
fn children_miss_calls_as_long_as_one_such_tool_is_there() {
    let binary = Binary::compile("forked.c", &[]);
    // How many are left when another one comes, and when the process forks.
    for (left_at_first, left_at_fork, expected) in [(1, 1, NO_CHILDREN), (1, 0, ALL), (0, 0, ALL)] {
        let mut process = binary.start(&[]);
        let pid = process.pid();
        let mut closing = vec![close_to_children(pid), close_to_children(pid)];
        closing.truncate(left_at_first);
        let counts = count(&mut process, || closing.truncate(left_at_fork));
        assert_eq!(counts, expected, "{left_at_first} {left_at_fork}");
    }
}

#[test]
#[ignore = "is the tool that another test kills"]
fn close_and_wait() {
    let _runtime = close_to_children(std::env::var(FILE).unwrap().parse().unwrap());
    println!("ready");
    wait_until(|| false);
}

#[test]
fn children_miss_no_calls_once_such_a_tool_was_killed() {
    let mut process = Binary::compile("forked.c", &[]).start(&[]);
    let mut tool = tool("missed::close_and_wait", process.pid());
    tool.kill().unwrap();
    tool.wait().unwrap();
    assert_eq!(count(&mut process, || {}), ALL);
}
