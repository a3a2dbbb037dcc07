//! The answers of a run: its record as JSON, as a table, and as others like it.

use std::fs;

use crate::{
    finished::{finished, unwritten},
    journals::{assert_holds, record, trials},
    require,
    running::Running,
    tool::{QUICK, Tool},
};

/// The keys of a record that programs may rely on (schema 1).
const RECORD: [&str; 14] = [
    "schema",
    "bpfcost",
    "experiment",
    "target",
    "unit",
    "started",
    "seed",
    "stop",
    "machine",
    "warnings",
    "cases",
    "comparisons",
    "spread",
    "seconds",
];
const CASE: [&str; 10] = [
    "name",
    "factors",
    "baseline",
    "status",
    "problems",
    "reason",
    "samples",
    "secondary",
    "raw",
    "net",
];
const RAW: [&str; 11] = [
    "epochs", "trials", "value", "ci95", "min", "max", "p90", "p99", "stddev", "cv", "modes",
];
const MACHINE: [&str; 10] = [
    "kernel",
    "cpu",
    "cpus",
    "virtualised",
    "clocksource",
    "governor",
    "smt",
    "jit",
    "bpf_stats",
    "steal_ms",
];

#[test]
fn json_is_the_record() {
    if !require::host() {
        return;
    }
    let record = record(&finished().json);
    let has = |value: &serde_json::Value, keys: &[&str]| {
        for key in keys {
            assert!(value.get(key).is_some(), "no {key} in {value}");
        }
    };
    has(&record, &RECORD);
    has(&record["machine"], &MACHINE);
    for case in record["cases"].as_array().expect("an array") {
        has(case, &CASE);
        has(&case["raw"], &RAW);
        assert_eq!(case["status"], "ok");
    }
    assert_eq!(record["seed"], 7);
    assert_holds(&record, &trials(&finished().journal));
}

#[test]
fn a_run_that_ended_is_not_measured_again() {
    if !require::host() {
        return;
    }
    let tool = unwritten();
    let said = tool.says("run --resume x.json --format json");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("without measuring again"), "{said:?}");
    let (again, first) = (record(&said.out), record(&finished().json));
    for key in [
        "stop",
        "seed",
        "started",
        "seconds",
        "cases",
        "comparisons",
        "spread",
    ] {
        assert_eq!(again[key], first[key], "{key}");
    }
    assert_eq!(tool.names(), ["x.json"], "the journal has done its work");
}

#[test]
fn every_format_answers() {
    if !require::host() {
        return;
    }
    let of = |options: &str| unwritten().answers(&format!("run --resume x.json {options}"));
    let table = of("");
    assert!(
        table.contains("pass-non-ip") && !table.contains('\u{1b}'),
        "{table}"
    );
    assert!(of("--verbose").contains("p99"));
    assert!(of("--format markdown").contains("| `pass-non-ip` |"));
    let csv = of("--format csv");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert!(!reader.headers().expect("a header").is_empty());
    let rows: Result<Vec<_>, _> = reader.records().collect();
    assert_eq!(rows.expect("rows").len(), 3);
}

#[test]
fn colours_are_for_terminals() {
    let tool = Tool::new();
    assert!(!tool.says("check").out.contains('\u{1b}'));
    let seen = |before: &str| {
        let script = format!("{before} script -qec \"$BPFCOST check\" /dev/null </dev/null");
        tool.shell(&script).out
    };
    let shown = seen("");
    if !shown.contains("kernel") {
        require::skip("there is no `script`, which makes a terminal");
        return;
    }
    assert!(shown.contains("\u{1b}["), "{shown}");
    assert!(!seen("NO_COLOR=1").contains("\u{1b}["));
}

#[test]
fn a_record_that_cannot_be_written_is_made_later() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut run = Running::start(&tool, QUICK);
    run.until(|journal| !trials(journal).is_empty());
    fs::create_dir(tool.path("x.json")).expect("a folder in the way");
    let said = run.end();
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(
        said.out.contains("pass-non-ip"),
        "the table is shown: {said:?}"
    );
    said.complains(&[
        "not a regular file",
        "could not be saved",
        "--resume x.json.journal",
    ]);
    fs::remove_dir(tool.path("x.json")).expect("it is empty");
    let journal = fs::read_to_string(tool.path("x.json.journal")).expect("the journal");
    let made = record(&tool.answers("run --resume x.json --format json"));
    assert_holds(&made, &trials(&journal));
    assert_eq!(made["stop"], "rounds");
}

#[test]
fn too_short_a_time_is_refused_with_the_one_that_it_takes() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let line = "run xdp-lb --time 100ms --case pass-non-ip --out x.json";
    tool.refuses(
        line,
        2,
        &[
            "too short",
            "--time ",
            "--case GLOB",
            "--resume x.json.journal --time ",
        ],
    );
    assert_eq!(tool.names(), ["x.json.journal"]);
}
