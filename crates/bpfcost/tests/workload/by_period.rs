//! A tool that costs something once in a period: with `period-ms`, each window holds whole periods, and the record's cost
//! is what the server's own account says.

use std::fs;

use serde_json::Value;

use crate::{definition::able, running::Running, tool::Tool};

const PERIODIC: &str = include_str!("by_period.toml");
/// Folder of the definition's files.
const FILES: &str = "/tmp/bpfcost-periodic";

/// The servers' account of all their time with the tool: requests, and nanoseconds that the tool made them take.
fn account(tool: &Tool) -> (f64, f64) {
    let accounts = tool.names();
    let accounts = accounts
        .iter()
        .filter(|name| name.starts_with("periodic-account-"));
    let (mut calls, mut burnt) = (0.0, 0.0);
    for name in accounts {
        let text = fs::read_to_string(tool.path(name)).expect("an account");
        let mut numbers = text
            .split(' ')
            .map(|number| number.parse::<f64>().expect("a number"));
        calls += numbers.next().expect("requests");
        burnt += numbers.next().expect("nanoseconds");
    }
    (calls, burnt)
}

/// The numbers of a case's windows, by epoch.
fn windows(case: &Value, name: &str) -> Vec<Vec<f64>> {
    let values = if name.is_empty() {
        &case["samples"]
    } else {
        &case["secondary"][name]
    };
    serde_json::from_value(values.clone()).expect("numbers by epoch")
}

#[test]
fn what_comes_once_in_a_period_is_in_every_window() {
    if !able(&["python3"]) {
        return;
    }
    let tool = Tool::new();
    let files = tool.path("periodic");
    let text = PERIODIC
        .replace(FILES, files.to_str().expect("UTF-8"))
        .replace("sleep 1", "sleep 0.3")
        .replace("window-ms = 250", "window-ms = 250\nperiod-ms = 300");
    tool.write("x.toml", text);
    // Six epochs are enough for intervals, and take a minute: a tool without BPF counts as on after a second, and windows
    // are at least three times as long.
    let mut run = Running::start(&tool, "run x.toml --quick --format json");
    run.until(|journal| journal.matches("\n{\"epoch-finished\"").count() >= 6);
    run.signal("INT");
    let said = run.end();
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.err.contains("2 periods each"), "{said:?}");
    let record: Value = serde_json::from_str(&said.out).expect("a record");

    // A case has one window of two periods on a server, and those last no less.
    let cases = ["off", "tool"].map(|name| {
        let mut cases = record["cases"].as_array().expect("cases").iter();
        cases.find(|case| case["name"] == name).expect("the case")
    });
    // The last epoch may lack one.
    let whole = cases.map(|case| windows(case, "").concat().len());
    let whole = whole[0].min(whole[1]);
    let mut totals = Vec::new();
    for case in cases {
        assert_eq!(case["calibration"]["batch"], 600, "{case}");
        let windows = |name| windows(case, name).into_iter().take(whole);
        let samples: Vec<Vec<f64>> = windows("").collect();
        let ops: Vec<Vec<f64>> = windows("ops").collect();
        assert!(samples.iter().all(|epoch| epoch.len() == 1), "{case}");
        let periods: Vec<f64> = windows("periods").flatten().collect();
        assert!(periods.iter().all(|periods| *periods >= 2.0), "{periods:?}");
        let spent = samples
            .concat()
            .iter()
            .zip(ops.concat())
            .map(|(ns, ops)| ns * ops)
            .sum::<f64>();
        totals.push(spent / ops.concat().iter().sum::<f64>());
    }
    // The total is that of these windows.
    let total = &record["comparisons"][0]["totals"];
    let relative = total["relative"].as_f64().expect("a total");
    let ratio = totals[1] / totals[0] - 1.0;
    assert!((relative - ratio).abs() < 1e-9, "{relative} {ratio}");

    // What the server was made to do beside each request, of what a request takes without. The bound is wide, because
    // the account is of more than the windows.
    let (calls, burnt) = account(&tool);
    let known = burnt / calls / totals[0];
    let end = |index: usize| total["ci95"][index].as_f64().expect("an end");
    println!(
        "known {known:.3}, in total {relative:.3} [{:.3}, {:.3}]",
        end(0),
        end(1)
    );
    assert!(known > 0.05, "the tool made no cost: {known}");
    let (low, high) = (end(0) - known / 2.0, end(1) + known / 2.0);
    assert!((low..=high).contains(&known), "{known} {total}");
    assert!(relative > known / 4.0, "{known} {total}");
}
