//! The JSON contract: the keys of schema 1, as record/schema.rs has them. A key that is renamed or dropped
//! here is a new schema.

use std::collections::BTreeSet;

use serde_json::Value;

use super::record;

/// The paths of all keys; arrays are passed through, free names are `*`.
fn keys(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let free = path.ends_with("factors") || path.ends_with("secondary");
                let path = match (path, free) {
                    ("", _) => key.clone(),
                    (path, true) => format!("{path}.*"),
                    (path, false) => format!("{path}.{key}"),
                };
                paths.insert(path.clone());
                keys(value, &path, paths);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, path, paths)),
        _ => {}
    }
}

#[test]
fn a_record_has_the_keys_of_schema_1() {
    let mut record = record(12);
    record
        .warnings
        .push(bpfcost_measure::Warning::new("steal", "much"));
    record.cases[0]
        .raw
        .as_mut()
        .unwrap()
        .modes
        .push(super::super::ModeRecord {
            value: 1.0,
            share: 1.0,
        });
    record.cases[0].calibration = Some(bpfcost_measure::Calibration {
        batch: bpfcost_model::Batch(1),
        ns_per_op: 1.0,
        ratio: None,
        attempts: 1,
        traced: false,
    });
    record.cases[0].problems.push(bpfcost_model::Problem {
        check: "c".into(),
        expected: "e".into(),
        got: "g".into(),
        detail: "d".into(),
    });
    record.machine.features.push(super::super::FeatureRecord {
        name: "f".into(),
        missing: None,
    });
    let value = serde_json::to_value(&record).unwrap();
    let mut paths = BTreeSet::new();
    keys(&value, "", &mut paths);
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let expected: Vec<&str> = include_str!("keys.txt").lines().collect();
    assert_eq!(paths, expected, "{}", paths.join("\n"));

    assert_eq!(value["schema"], 1);
    assert_eq!(value["unit"], "ns/op");
    assert_eq!(value["stop"], "precision");
    assert_eq!(value["cases"][0]["status"], "ok");
    assert_eq!(value["comparisons"][0]["verdict"], "slower");
    assert_eq!(value["comparisons"][0]["budget"], "over");
    assert!(
        value["cases"][0]["raw"]["ci95"]
            .as_array()
            .is_some_and(|ends| ends.len() == 2)
    );
}

#[test]
fn words_of_the_contract_are_spelt_so() {
    use super::super::{BudgetVerdict, ChangeOutcome, Gate, Status, VerdictRecord};
    let spelt = [
        serde_json::to_value(BudgetVerdict::CantTell),
        serde_json::to_value(Status::Unsupported),
        serde_json::to_value(VerdictRecord::Unresolved),
        serde_json::to_value(ChangeOutcome::Regressed),
        serde_json::to_value(Gate::Passed),
    ];
    let words = [
        "can't tell",
        "unsupported",
        "unresolved",
        "regressed",
        "passed",
    ];
    assert_eq!(spelt.map(|value| value.expect("a word")), words);
}
