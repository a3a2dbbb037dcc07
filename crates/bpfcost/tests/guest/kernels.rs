//! Other kernels: everything that can be measured on one of them is measured on each.

use crate::{kept::valid_record, require, tool::Tool, visit::says};

/// All of `xdp-lb` on a target: every case valid, timed with this loop.
#[track_caller]
fn measures_all(target: &str, looping: &str) {
    let tool = Tool::new();
    let said = says(
        &tool,
        &format!("run xdp-lb --quick --seed 7 --on {target}"),
        "{}",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = valid_record(&tool);
    assert_eq!(record.cases.len(), 29);
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
        measures_all("vm:6.1", "bpf_loop");
    }
}

#[test]
fn the_newest_is_counted() {
    if require::version("sid", "sid") {
        measures_all("exact:sid", "can_loop");
    }
}
