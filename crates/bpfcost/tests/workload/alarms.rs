//! A/A: off against off, many times over. Whatever is found is false.

use serde_json::Value;

use crate::{definition::able, tool::Tool};

/// Runs, and how many of them may find something (docs/evidence/workloads.md: a rate of 5 % shows more than 4 in 20 once in
/// 400 times).
const RUNS: u64 = 20;
const ALLOWED: usize = 4;
/// The widest reach of the interval of CPU time per command from its middle, in percent, with the 20 pairs of windows
/// that a quick run has.
const REACH: f64 = 2.0;

/// The verdicts on every comparison of every quantity of a record: CPU time, the machine's, throughput, latencies.
fn verdicts(record: &Value) -> Vec<String> {
    let metrics = record["metrics"].as_array().expect("metrics");
    let all = std::iter::once(record).chain(metrics);
    all.flat_map(|one| one["comparisons"].as_array().expect("comparisons"))
        .map(|one| one["verdict"].as_str().expect("a verdict").to_owned())
        .collect()
}

/// A run of redis on `nothing` against `off`: its verdicts, and the half-width of CPU time in percent.
fn run(tool: &Tool, seed: u64) -> (Vec<String>, f64) {
    let said = tool.says(&format!(
        "run redis --quick --case off --case nothing --seed {seed} --format json --out {seed}.json"
    ));
    assert_eq!(said.code, Some(0), "{said:?}");
    let record: Value = serde_json::from_str(&said.out).expect("a record");
    let comparison = &record["comparisons"][0];
    let ends = comparison["relative_ci95"].as_array().expect("an interval");
    let end = |index: usize| ends[index].as_f64().expect("a number");
    let verdicts = verdicts(&record);
    assert!(verdicts.len() >= 4, "{record}");
    println!("seed {seed}: {verdicts:?}, {}", comparison["relative_ci95"]);
    (verdicts, (end(1) - end(0)) * 50.0)
}

/// On an otherwise idle machine: `cargo test --release -p bpfcost --test workload -- --ignored --nocapture`.
#[test]
#[ignore = "a quarter of an hour on an otherwise idle machine"]
fn off_is_not_found_to_cost_more_than_off() {
    if !able(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let tool = Tool::new();
    let runs: Vec<(Vec<String>, f64)> = (1..=RUNS).map(|seed| run(&tool, seed)).collect();
    let alarms = runs
        .iter()
        .filter(|(all, _)| all.iter().any(|one| one == "slower" || one == "faster"));
    assert!(alarms.count() <= ALLOWED, "{runs:?}");
    let mut reach: Vec<f64> = runs.iter().map(|(_, reach)| *reach).collect();
    reach.sort_by(f64::total_cmp);
    let median = reach[reach.len() / 2];
    println!("half-widths: {reach:.2?}, median {median:.2} %");
    assert!(median <= REACH, "{reach:?}");
}
