//! Other kernels: the load balancer runs on each of them.

use crate::{kept::valid_record, require, tool::Tool, visit::says};

/// These cases of `xdp-lb` on a target, floors included: every one valid, timed with this loop.
#[track_caller]
fn measures(globs: &[&str], count: usize, target: &str, looping: &str) {
    let tool = Tool::new();
    let globs: String = globs.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run xdp-lb{globs} --quick --seed 7 --on {target}");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = valid_record(&tool);
    assert_eq!(record.cases.len(), count);
    for case in &record.cases {
        let value = case.raw.as_ref().map_or(0.0, |raw| raw.value);
        assert!(value > 0.0, "{}: {value}", case.name);
    }
    let programs = record.machine.programs.unwrap_or_default();
    assert!(programs.contains(looping), "{programs}");
}

#[test]
fn linux_6_1_is_timed_with_bpf_loop() {
    if require::version("6.1", "bookworm") {
        measures(&["*"], 29, "vm:6.1", "bpf_loop");
    }
}

#[test]
fn the_newest_is_counted() {
    if require::version("sid", "sid") {
        // Those of the same code for the other family are left out: emulated, each takes seconds to load.
        let cases = ["*v6*", "pass-*", "tcp-v4-lru-miss"];
        measures(&cases, 16, "exact:sid", "can_loop");
    }
}
