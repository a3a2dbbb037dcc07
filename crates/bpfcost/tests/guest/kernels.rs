//! Other kernels: the load balancer runs on each of them.

use crate::{kept::valid_record, require, tool::Tool, visit::says};

/// Cases of `xdp-lb` that need every program of it, each state of its table, and both families. Emulated, each of the
/// others would take seconds to load, and show nothing more of a kernel.
const CASES: [&str; 5] = [
    "tcp-*-lru-diverse",
    "tcp-v4-lru-miss",
    "tcp-v4-syn",
    "lru-insert-empty",
    "drop-v?-frag",
];

/// Those on a target, with all floors: every one valid, counted with this loop.
#[track_caller]
fn measures(target: &str, looping: &str) {
    let tool = Tool::new();
    let globs: String = CASES.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run xdp-lb{globs} --quick --seed 7 --on {target}");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = valid_record(&tool);
    assert_eq!(record.cases.len(), 7 + 4);
    for case in &record.cases {
        let value = case.raw.as_ref().map_or(0.0, |raw| raw.value);
        assert!(value > 0.0, "{}: {value}", case.name);
    }
    let programs = record.machine.programs.unwrap_or_default();
    assert!(programs.contains(looping), "{programs}");
}

#[test]
fn linux_6_1_is_counted_with_bpf_loop() {
    if require::version("6.1", "bookworm") {
        measures("exact:6.1", "bpf_loop");
    }
}

#[test]
fn the_newest_is_counted() {
    if require::version("sid", "sid") {
        measures("exact:sid", "can_loop");
    }
}
