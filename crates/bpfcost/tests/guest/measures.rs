//! Results of runs in guests: the same records as on the host, of another machine.

use std::fs;

use serde_json::Value;

use crate::{
    require,
    tool::Tool,
    visit::{QUICK, Visit, assert_nothing_left, says},
};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every case is valid and has values.
fn assert_measured(record: &Value) {
    for case in record["cases"].as_array().expect("cases") {
        assert_eq!(case["status"], "ok", "{case}");
        assert!(
            case["raw"]["value"]
                .as_f64()
                .is_some_and(|value| value > 0.0),
            "{case}"
        );
    }
}

#[test]
fn several_guests_are_machines_of_their_own_with_the_same_record() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    fs::create_dir(tool.path("out")).expect("a folder");
    let line = format!("{QUICK} --on vm:{kernel} --on exact:{kernel} --out out --format json");
    let said = crate::visit::command(&tool, &line)
        .output()
        .expect("the binary runs");
    let said = crate::tool::said(&said);
    assert_nothing_left(&tool);
    assert_eq!(said.code, Some(0), "{said:?}");
    let records = json(&said.out);
    let [timed, counted] = records.as_array().expect("an array").as_slice() else {
        panic!("{records}");
    };
    let here = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let emulator = |record: &Value| {
        assert_measured(record);
        assert_ne!(record["machine"]["kernel"], here.trim());
        let emulator = record["machine"]["emulator"].as_str().expect("who runs it");
        assert!(emulator.starts_with("QEMU "), "{emulator}");
        emulator.to_owned()
    };
    let warned = |record: &Value| {
        let warnings = record["warnings"].as_array();
        warnings.is_some_and(|all| all.iter().any(|one| one["code"] == "emulated"))
    };
    let by = emulator(timed);
    assert_eq!(timed["target"], format!("vm:{kernel}"));
    assert_eq!(timed["stop"], "rounds");
    assert!(!by.contains("-icount"), "{by}");
    assert_eq!(warned(timed), by.contains(", tcg"), "{by}");

    let by = emulator(counted);
    assert_eq!(counted["target"], format!("exact:{kernel}"));
    assert_eq!(counted["machine"]["cpus"], 1);
    assert!(
        by.contains(", tcg") && by.contains("-icount shift=0"),
        "{by}"
    );

    let mut kept: Vec<Value> = fs::read_dir(tool.path("out"))
        .expect("records")
        .map(|entry| json(&fs::read_to_string(entry.expect("a file").path()).expect("a record")))
        .collect();
    kept.sort_by_key(|record| record["machine"]["cpus"] == 1);
    assert_eq!(&kept, records.as_array().expect("an array"));
    assert_eq!(tool.names(), ["out", "scratch"]);
}

#[test]
fn an_interrupted_run_is_shown_kept_and_continued() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let line = format!("run ladder --seed 7 --case added-10 --time 300s --on vm:{kernel}");
    let mut visit = Visit::start(&tool, &line, "{}");
    visit.until(|journal| journal.matches("\n{\"epoch-finished\"").count() >= 2);
    visit.signal("INT");
    let said = visit.end();
    assert_nothing_left(&tool);
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.out.contains("added-10"), "{said:?}");
    let partial = json(&fs::read_to_string(tool.path("x.json")).expect("a record"));
    assert_eq!(partial["stop"], "interrupted");
    assert_measured(&partial);

    // It goes on where it was, with the same batches, and holds what was measured before.
    let resumed = crate::visit::command(&tool, "run --resume x.json --precision 50% --format json")
        .output()
        .expect("the binary runs");
    let said = crate::tool::said(&resumed);
    assert_nothing_left(&tool);
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = json(&said.out);
    assert_measured(&whole);
    let epochs = |record: &Value| record["cases"][0]["samples"].as_array().map_or(0, Vec::len);
    assert!(
        epochs(&whole) > epochs(&partial),
        "{} epochs",
        epochs(&whole)
    );
    let (now, then) = (&whole["cases"][0], &partial["cases"][0]);
    assert_eq!(now["samples"][0], then["samples"][0]);
    assert_eq!(now["calibration"], then["calibration"]);
    assert!(!tool.path("x.json.journal").exists());
}

#[test]
fn several_cpus_of_a_guest_are_its_own() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let exact = format!("{QUICK} --on exact:{kernel} --cpus 0,1");
    tool.refuses_here(&exact, &["has one CPU"]);
    let beyond = format!("{QUICK} --on vm:{kernel} --cpus 8000");
    tool.refuses_here(&beyond, &["cannot have CPU 8000"]);
}

impl Tool {
    /// Refused as wrong usage before anything boots.
    #[track_caller]
    fn refuses_here(&self, line: &str, words: &[&str]) {
        let said = says(self, line, "{}");
        assert_eq!(said.code, Some(2), "{said:?}");
        said.complains(words);
        assert!(!said.err.contains("booting"), "{said:?}");
    }
}
