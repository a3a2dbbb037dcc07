//! A known answer on a running server: 1 µs in each run of a program reads as 1 µs of CPU time.

use std::fs;

use bpfcost::record::{Comparison, Record, Status};

use crate::{definition::able, tool::Tool};

const KNOWN_NS: f64 = 1000.0;
/// What an interval may lie beside it: a spell ends at a reading of the clock, the caches of a server are colder
/// after it, and the machine may be shared.
const BESIDE_NS: f64 = 300.0;
/// An interval that is wider says nothing.
const WIDEST_NS: f64 = 1000.0;

/// What a comparison with the same event without a work says of a command: the interval.
fn per_command(of: &[Comparison], case: &str, baseline: &str) -> [f64; 2] {
    let of = of
        .iter()
        .find(|one| one.case == case && one.baseline == baseline);
    of.and_then(|one| one.ci95).expect("an interval")
}

/// Runs of a case's program in a command.
fn hits(record: &Record, case: &str) -> f64 {
    let case = record.cases.iter().find(|one| one.name == case);
    let hits = case.expect("the case").secondary["hits"].concat();
    hits.iter().sum::<f64>() / hits.len() as f64
}

#[test]
fn a_microsecond_reads_as_a_microsecond() {
    if !able(&["redis-server", "redis-benchmark", "dd"]) {
        return;
    }
    let tool = Tool::new();
    let said = tool.says("run busy --quick --seed 7 --out x.json");
    assert_eq!(said.code, Some(0), "{said:?}");
    let text = fs::read_to_string(tool.path("x.json")).expect("a record");
    let record: Record = serde_json::from_str(&text).expect("a record");
    for case in &record.cases {
        assert_eq!(
            case.status,
            Status::Ok,
            "{}: {:?}",
            case.name,
            case.problems
        );
    }
    // One write an operation. Others who write meanwhile are among the hits, and few.
    let [low, high] = per_command(&record.comparisons, "syscall/busy", "syscall/null");
    eprintln!("in a system call: {low:.0} to {high:.0} ns");
    assert_holds_the_known(low, high);
    let interval = per_command(
        &record.comparisons,
        "softirq/busy/commands",
        "softirq/null/commands",
    );
    let [low, high] = interval.map(|ns| ns / hits(&record, "softirq/busy/commands"));
    eprintln!("in a soft interrupt: {low:.0} to {high:.0} ns");
    assert_holds_the_known(low, high);
}

#[track_caller]
fn assert_holds_the_known(low: f64, high: f64) {
    if high - low > WIDEST_NS {
        eprintln!("SKIPPED: the machine is too busy to tell: {low:.0} to {high:.0} ns");
        return;
    }
    let held = (low - BESIDE_NS..=high + BESIDE_NS).contains(&KNOWN_NS);
    assert!(held, "{low} to {high}");
}
