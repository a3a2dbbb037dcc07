//! The record that a run left.

use std::fs;

use bpfcost_record::{Record, Status};

use crate::tool::Tool;

/// Reads the record that a run left as `x.json`.
#[track_caller]
pub(crate) fn record(tool: &Tool) -> Record {
    let text = fs::read_to_string(tool.path("x.json")).expect("a record");
    serde_json::from_str(&text).expect("a record")
}

/// The same, where each case of it has to be valid.
#[track_caller]
pub(crate) fn valid_record(tool: &Tool) -> Record {
    let record = record(tool);
    for case in &record.cases {
        assert_eq!(
            case.status,
            Status::Ok,
            "{}: {:?}",
            case.name,
            case.problems
        );
    }
    record
}
