//! Costs in formats of other benchmark tools. benchstat itself reads our text.

use std::{env, fs, path::PathBuf, process::Command};

use bpfcost_record::Record;
use bpfcost_report::benchmark;
use serde_json::Value;

use crate::{
    common::{sample_exact, sample_record},
    require::skip_as,
};

/// As `scripts/setup.sh test` installs it, or on the PATH.
fn benchstat() -> Option<PathBuf> {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or(home);
    let ours = data.map(|data| data.join("bpfcost/bin/benchstat"));
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("benchstat"));
    let found = ours.into_iter().chain(found).find(|file| file.is_file());
    if found.is_none() {
        skip_as(
            "benchstat",
            "there is no benchstat; run scripts/setup.sh test",
        );
    }
    found
}

#[test]
fn text_for_benchstat() {
    insta::assert_snapshot!(benchmark::go(&[sample_record::flawed()]));
}

#[test]
fn counts_for_benchstat() {
    insta::assert_snapshot!(benchmark::go(&[sample_exact::flawed()]));
}

#[test]
fn json_of_bencher() {
    let records = [sample_record::flawed(), sample_exact::old()];
    insta::assert_snapshot!(benchmark::bencher(&records).expect("JSON"));
}

#[test]
fn json_of_github() {
    let records = [sample_record::flawed(), sample_exact::old()];
    insta::assert_snapshot!(benchmark::github(&records).expect("JSON"));
}

/// Invalid cases and floors are in none of them, and what names hold does not break lines.
#[test]
fn measured_cases_alone() {
    let mut record = sample_record::flawed();
    let measured = |record: &Record| {
        let json = benchmark::bencher(std::slice::from_ref(record)).expect("JSON");
        let benchmarks: Value = serde_json::from_str(&json).expect("JSON");
        benchmarks.as_object().expect("an object").len()
    };
    let before = measured(&record);
    assert!(before > 0 && before < record.cases.len(), "{before}");
    let case = record.cases.iter().position(|case| case.raw.is_some());
    record.cases[case.expect("a case")].name = "a\nBenchmarkX 1 2 ns/op\tb".to_owned();
    assert_eq!(measured(&record), before);
    let text = benchmark::go(&[record]);
    let names = text.lines().filter(|line| line.starts_with("Benchmark"));
    assert!(names.clone().count() > 0);
    for line in names {
        assert_eq!(line.split(' ').count(), 4, "{line}");
        assert!(!line.starts_with("BenchmarkX "), "{line}");
    }
}

#[test]
fn benchstat_sees_a_case_that_costs_more() {
    let Some(benchstat) = benchstat() else {
        return;
    };
    let old = sample_record::clean();
    let mut new = old.clone();
    let dearer = "tcp-v4-lru-hit";
    let case = new.cases.iter_mut().find(|case| case.name == dearer);
    let case = case.expect("the case");
    for value in case.samples.iter_mut().flatten() {
        *value *= 1.1;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let files = [("old.txt", old), ("new.txt", new)].map(|(name, record)| {
        let file = folder.path().join(name);
        fs::write(&file, benchmark::go(&[record])).expect("our own file");
        file
    });
    let output = Command::new(benchstat).args(&files).output();
    let output = output.expect("benchstat runs");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success() && err.is_empty(), "{out}{err}");
    assert!(out.contains("sec/op"), "{out}");
    let line = |name: &str| {
        let mut lines = out
            .lines()
            .filter(|line| line.contains(&format!("/{name}-1 ")));
        lines.next().unwrap_or_else(|| panic!("no {name} in {out}"))
    };
    assert!(line(dearer).contains("+10.00%"), "{out}");
    assert!(line("tcp-v4-lru-miss").contains('~'), "{out}");
}
