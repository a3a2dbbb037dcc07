//! Records that lack a safeguard say so when they are compared, and older ones do too.

use bpfcost_model::Waivers;

use super::{
    super::*,
    compare::{at, codes},
    record,
};
use crate::samples::{compared, windows};

/// The warnings of a comparison of two sessions, the first of which lacks what `take` takes away.
fn warnings(take: impl Fn(&mut Record)) -> Vec<(String, String)> {
    let mut old = at(0, &[("a", 100.0)]);
    take(&mut old);
    let new = at(1, &[("a", 100.0)]);
    let changes = compared(&[old], &[new], GateOptions::default());
    let warnings = changes.unwrap().warnings.into_iter();
    let named = warnings.map(|warning| (warning.code, warning.text));
    named.filter(|(code, _)| code.starts_with("no-")).collect()
}

#[test]
fn a_comparison_names_what_a_record_lacks() {
    assert_eq!(warnings(|_| ()), []);
    let [(code, text)] = &warnings(|record| record.spread.sentinel = None)[..] else {
        panic!("one warning");
    };
    assert_eq!(code, "no-sentinel");
    assert!(
        text.contains("1 of 2 records have no sentinel (they give no reason)"),
        "{text}"
    );
    let waived = warnings(|record| {
        record.machine.programs = None;
        record.waivers.programs = Some("nothing is loaded".to_owned());
    });
    let [(code, text)] = &waived[..] else {
        panic!("one warning: {waived:?}");
    };
    assert_eq!(code, "no-provenance");
    assert!(text.contains("(nothing is loaded)"), "{text}");
}

/// The difference to the same server without a probe is compared, which needs no sentinel.
#[test]
fn workloads_need_no_sentinel() {
    let run = || windows(None, |window, _| 100.0 + window as f64, |_| 1000.0);
    let records = [run(), run()];
    assert_eq!(records[0].spread.sentinel, None);
    let [old, new] = records;
    let changes = compared(&[old], &[new], GateOptions::default()).unwrap();
    assert!(!codes(&changes).contains(&"no-sentinel"));
}

#[test]
fn waivers_are_written_and_records_without_them_are_read() {
    let mut record = record(3);
    let before = serde_json::to_value(&record).unwrap();
    assert_eq!(before.get("waivers"), None);
    assert_eq!(serde_json::from_value::<Record>(before).unwrap(), record);
    record.waivers = Waivers {
        sentinel: Some("it is short".to_owned()),
        ..Waivers::default()
    };
    let written = serde_json::to_value(&record).unwrap();
    assert_eq!(written["waivers"]["sentinel"], "it is short");
    assert_eq!(serde_json::from_value::<Record>(written).unwrap(), record);
}
