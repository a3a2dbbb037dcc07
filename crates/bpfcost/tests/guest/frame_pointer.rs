//! A kernel that keeps frame pointers, as study 000 had: at a function's entry the helper misses the caller, which the walk
//! by hand has; and the walk costs a quarter of the helper. That kernel is built, which takes minutes: a kind of its own.

use serde_json::Value;

use crate::{inside::Results, require, stack};

/// Packets to this machine while each of two runs listens.
const SCRIPT: &str = r#"
links=1
ip link set lo up
send() { exec 3>/dev/udp/127.0.0.1/9; for i in {1..50}; do echo >&3; done; }
starts manual stack ip_rcv --attach kprobe --json; send; ends
starts helper stack ip_rcv --attach kprobe --json --helper; send; ends
"#;

/// The function that calls `ip_rcv`.
const CALLER: &str = "__netif_receive_skb_one_core";

/// Number of events whose stacks have the caller of their first function on them, and number of all events.
fn with_caller(results: &Results, name: &str) -> (u64, u64) {
    let profile: Value = serde_json::from_str(results.answer(name)).expect("JSON");
    let total = |name: &str| profile["totals"][name].as_u64().expect("a count");
    assert_eq!((total("lost"), total("ended_early")), (0, 0), "{profile}");
    let mut having = 0;
    for stack in profile["stacks"].as_array().expect("stacks") {
        let frames = stack["frames"].as_array().expect("frames");
        let names: Vec<&str> = frames
            .iter()
            .map(|frame| frame["name"].as_str().expect("a name"))
            .collect();
        assert!(names[0].starts_with("ip_rcv"), "{names:?}");
        // What is behind the caller, both have.
        let outer = names.iter().any(|name| name.starts_with("process_backlog"));
        assert!(outer, "{names:?}");
        if names.iter().any(|name| name.starts_with(CALLER)) {
            having += stack["count"].as_u64().expect("a count");
        }
    }
    (having, total("events"))
}

#[test]
fn the_helper_misses_the_caller_that_the_walk_has() {
    if !require::built("6.12-fp") {
        return;
    }
    let results = Results::measure("6.12-fp", SCRIPT);
    let (having, events) = with_caller(&results, "manual");
    assert!(events > 0, "no packet came");
    assert_eq!(having, events);
    let (having, events) = with_caller(&results, "helper");
    assert!(events > 0, "no packet came");
    assert_eq!(having, 0);
}

#[test]
fn a_stack_on_a_frame_pointer_kernel_costs_a_quarter_of_the_helper() {
    if require::built("6.12-fp") {
        let cases = [&stack::CASES[..], &stack::AT_FUNCTIONS].concat();
        let record = stack::record("run stack --on exact:6.12-fp", &cases);
        stack::costs_less(&record, 0.25);
        // With the caller that the helper misses; each trial proves that it is there.
        for attach in ["kprobe", "fentry"] {
            let share = stack::share(
                &record,
                &format!("count@{attach}/32"),
                &format!("get_stack@{attach}/32"),
            );
            assert!(share <= 0.30, "{attach}: {share}");
        }
    }
}
