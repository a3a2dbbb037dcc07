//! `run --baseline`: a run that is compared with an earlier record when it has ended.

use serde_json::Value;

use crate::{require, tool::Tool};

/// The record in `old.json` as if all its costs had been `factor` times what they were.
fn scale(tool: &Tool, name: &str, factor: f64) {
    let text = std::fs::read_to_string(tool.path("old.json")).expect("the record");
    let mut record: Value = serde_json::from_str(&text).expect("JSON");
    for case in record["cases"].as_array_mut().expect("cases") {
        let found = case.as_object_mut().expect("a case");
        // As found only, so that there is one place to change.
        found.remove("undisturbed");
        found.remove("slices");
        let times = |value: &mut Value| {
            *value = (value.as_f64().expect("a number") * factor).into();
        };
        let raw = &mut case["raw"];
        times(&mut raw["value"]);
        raw["ci95"]
            .as_array_mut()
            .expect("two")
            .iter_mut()
            .for_each(times);
        for epoch in case["samples"].as_array_mut().expect("epochs") {
            epoch
                .as_array_mut()
                .expect("trials")
                .iter_mut()
                .for_each(times);
        }
    }
    record["started"] = "2026-01-01T00:00:00Z".into();
    tool.write(name, record.to_string());
}

const RUN: &str = "run ladder --quick --case added-0 --case added-10";

/// With the record of a run in `old.json`.
fn measured() -> Option<Tool> {
    require::host().then(|| {
        let tool = Tool::new();
        tool.answers(&format!("{RUN} --out old.json"));
        tool
    })
}

#[test]
fn a_run_is_compared_with_an_earlier_one() {
    let Some(tool) = measured() else {
        return;
    };
    // By more than any noise: a tenth of what it costs, and ten times as much.
    scale(&tool, "cheap.json", 0.1);
    scale(&tool, "near.json", 0.8);
    scale(&tool, "dear.json", 10.0);
    let said = tool.says(&format!("{RUN} --out a.json --baseline cheap.json"));
    assert_eq!(said.code, Some(1), "{said:?}");
    let both = [
        "ladder on host",
        "The gate FAILED",
        "costs more, beyond 2 %",
    ];
    assert!(
        both.iter().all(|words| said.out.contains(words)),
        "{said:?}"
    );
    assert!(said.err.contains("record: a.json"), "{said:?}");
    let said = tool.says(&format!("{RUN} --out b.json --baseline dear.json"));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("costs less, beyond 2 %"), "{said:?}");
    // The gate's own options, and a format without a place for the changes.
    let lax = "--baseline near.json --threshold 99%";
    let said = tool.says(&format!("{RUN} --out c.json {lax} --format csv"));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("bpfcost compare near.json"), "{said:?}");
    assert!(!said.out.contains("gate"), "{said:?}");
}

/// Records of something else may lie beside those of the experiment, even such as can't be compared with each other.
#[test]
fn of_a_folder_the_records_of_the_experiment_count() {
    let Some(tool) = measured() else {
        return;
    };
    scale(&tool, "dear.json", 10.0);
    let text = |name: &str| std::fs::read_to_string(tool.path(name)).expect("a record");
    std::fs::create_dir(tool.path("kept")).expect("a folder");
    tool.write("kept/ladder.json", text("dear.json"));
    let other = text("old.json").replace("\"experiment\":\"ladder\"", "\"experiment\":\"map\"");
    tool.write("kept/quick.json", &other);
    let whole = other
        .replace("\"quick\":true", "\"quick\":false")
        .replace("\"seed\":", "\"seed\":1");
    assert_ne!(other, whole);
    tool.write("kept/whole.json", whole);
    tool.refuses("compare kept kept", 2, &["map on host", "--quick"]);
    let said = tool.says(&format!("{RUN} --out new.json --baseline kept"));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("costs less, beyond 2 %"), "{said:?}");
    assert!(!said.out.contains("only in old"), "{said:?}");
}

#[test]
fn a_baseline_that_can_not_be_compared_is_refused_before_anything_is_measured() {
    let Some(tool) = measured() else {
        return;
    };
    for (line, words) in [
        (
            "run ladder --quick --baseline none.json",
            ["none.json", "no file or folder"],
        ),
        (
            "run ladder --baseline old.json",
            ["--quick", "both sides the same way"],
        ),
        (
            "run map --quick --baseline old.json",
            ["nothing in common", "map on host"],
        ),
        (
            "run ladder --quick --case added-1 --baseline old.json",
            ["nothing in common", "ladder on host"],
        ),
        (
            "run ladder --quick --threshold 1%",
            ["required arguments", "--baseline <FILE>"],
        ),
        (
            "run ladder --quick --must-see 5%",
            ["required arguments", "--baseline <FILE>"],
        ),
        (
            "run ladder --quick --must-see 1% --baseline old.json",
            ["asked to see one of 1 %", "raise --must-see"],
        ),
    ] {
        tool.refuses(&format!("{line} --out new.json"), 2, &words);
        assert!(!tool.path("new.json").exists(), "{line}");
    }
}

/// Appended to what others wrote there, with what the gate says.
#[test]
fn the_summary_of_a_job_has_the_result_and_the_changes() {
    let Some(tool) = measured() else {
        return;
    };
    scale(&tool, "dear.json", 10.0);
    tool.write("job.md", "of a step before\n");
    let gate = "--baseline dear.json --format github-benchmark --summary job.md";
    let said = tool.says(&format!("{RUN} --out new.json {gate}"));
    assert_eq!(said.code, Some(0), "{said:?}");
    let costs: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(costs[1]["name"], "ladder/added-10 on host", "{costs}");
    assert!(costs[1]["value"].as_f64() > costs[0]["value"].as_f64());
    tool.says("compare dear.json new.json --summary job.md");
    let summary = std::fs::read_to_string(tool.path("job.md")).expect("it is there");
    assert!(summary.starts_with("of a step before\n"), "{summary}");
    assert_eq!(summary.matches("# ladder on host").count(), 1, "{summary}");
    assert_eq!(summary.matches("The gate passed").count(), 2, "{summary}");

    // Before anything is measured.
    let said = tool.says(&format!("{RUN} --out no.json --summary no/folder/job.md"));
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&["cannot append the result to no/folder/job.md", "--summary"]);
    assert!(!tool.names().iter().any(|name| name.starts_with("no.json")));
}
