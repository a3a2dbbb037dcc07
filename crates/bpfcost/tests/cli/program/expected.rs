//! Changes of runs in maps, what is expected of them, and what was recorded.

use serde_json::Value;

use super::{SOURCE, case, compile, record};
use crate::{require, tool::Tool};

/// Adds a key to one table in each run, and counts in an array.
const GROWS: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[1]; int (*max_entries)[1000]; unsigned long *key, *value; } flows SEC(".maps");
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } stats SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*update)(void *map, const void *key, const void *value, unsigned long flags) = (void *)2;
SEC("xdp") int grows(void *context)
{
	unsigned int first = 0;
	unsigned long *count = lookup(&stats, &first), key;

	if (!count)
		return 0;
	key = ++*count;
	update(&flows, &key, &key, 0);
	return 2;
}
"#;

/// The codes are all the same, and the cost is not that of one state.
#[test]
fn a_table_that_grows_is_said() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", GROWS);
    let record = record(&tool, "program x.bpf.o", 0);
    let warnings = record["warnings"].as_array().expect("warnings").iter();
    let drifts: Vec<&str> = warnings
        .filter(|warning| warning["code"] == "map-drift")
        .filter_map(|warning| warning["text"].as_str())
        .collect();
    assert_eq!(drifts.len(), 1, "{drifts:?}");
    assert!(
        drifts[0].contains("grows add entries to the map flows"),
        "{drifts:?}"
    );
    let observed = &case(&record, "grows/udp")["observed"];
    let per_run = serde_json::json!({ "flows": 1, "stats[0]": 1 });
    assert_eq!(observed["per_run"], per_run, "{observed}");
    assert_eq!(
        (&observed["code"], &observed["length"]),
        (&2.into(), &64.into())
    );
    tool.write("r.json", record.to_string());
    tool.answers(&format!("report {} -o r.md", tool.path("r.json").display()));
    let page = std::fs::read_to_string(tool.path("r.md")).expect("a page");
    for words in [
        "What a run changes",
        "no two runs find it the same",
        "| stats",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

const UNKNOWN: &str = "unknown: there is no such number, or what it is in can't be compared";

/// Right amounts are measured, and take the place of the warning; wrong ones have no number.
#[test]
fn changes_of_maps_can_be_expected() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", GROWS);
    let right = record(
        &tool,
        "program x.bpf.o --expect stats[0x0]=+1 --expect flows=1",
        0,
    );
    let warnings = right["warnings"].to_string();
    assert!(!warnings.contains("map-drift"), "{warnings}");
    for (wrong, check, got) in [
        ("stats[0]=+2", "stats[0] in each run", "+1"),
        ("flows=+0", "flows in each run", "+1"),
        ("flows[1]=-1", "flows[1] in each run", "+0"),
        ("stats[1]=+0", "stats[1] in each run", UNKNOWN),
        ("stats=+0", "stats in each run", UNKNOWN),
    ] {
        let record = record(&tool, &format!("program x.bpf.o --expect {wrong}"), 3);
        let case = case(&record, "grows/udp");
        assert_eq!(case["status"], "invalid", "{wrong}");
        assert_eq!(
            (&case["problems"][0]["check"], &case["problems"][0]["got"]),
            (&check.into(), &got.into())
        );
        assert!(case["raw"].is_null());
    }
    for (line, says) in [
        (
            "--expect none[0]=+1",
            &["no map or variable none", "Its maps: "][..],
        ),
        ("--expect stats=+1@8", &["No such file"]),
        ("--expect stats[x]=+1", &["a number of 4 bytes"]),
        ("--expect none.json", &["none.json", "No such file"]),
        (
            "--expect x.c",
            &[
                "x.c",
                "not a file that --record-expected wrote",
                "--record-expected",
            ],
        ),
        (
            "--record-expected none/e.json",
            &["none/e.json", "folder that exists"],
        ),
        (
            "--record-expected e.json --on host --on vm:6.1",
            &["takes one target"],
        ),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
    // An object without maps.
    compile(&tool, "plain", SOURCE);
    for (line, says) in [
        (
            "--expect foo[1]=+1",
            "It has no maps. Name MAP[KEY], VARIABLE, or",
        ),
        ("--map foo=x.json", "It has no maps"),
        ("--also foo[0]=passes", "It has no program arrays"),
    ] {
        let line = format!("program plain.bpf.o --program passes {line}");
        tool.refuses(&line, 2, &["foo", says]);
    }
}

/// A record of a program holds for it, and not for one that does something else.
#[test]
fn what_was_recorded_is_expected() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let programs = "--program passes --program counts --program called";
    let inputs = "--input builtin:udp --input builtin:zeros";
    let line = format!("program x.bpf.o {programs} {inputs}");
    record(&tool, &format!("{line} --record-expected e.json"), 0);
    let text = std::fs::read_to_string(tool.path("e.json")).expect("a file");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(file["schema"], 1);
    let known = file["expected"].as_array().expect("a list");
    assert_eq!(known.len(), 3, "{text}");
    let counts = known
        .iter()
        .find(|one| one["program"] == "counts")
        .expect("counts");
    assert_eq!(
        (&counts["input"], &counts["code"]),
        (&"udp".into(), &2.into())
    );
    assert_eq!(counts["per_run"], serde_json::json!({ "runs": 1 }));
    record(&tool, &format!("{line} --expect e.json"), 0);
    // Of fewer cases, but not of a packet that was not recorded.
    record(&tool, "program x.bpf.o --program passes --expect e.json", 0);
    let other = "program x.bpf.o --program passes --input builtin:tcp --expect e.json";
    tool.refuses(other, 2, &["nothing is expected there of passes on tcp"]);
    tool.write(
        "udp.json",
        text.replace(counts["input_digest"].as_str().expect("a digest"), "00"),
    );
    let other = "program x.bpf.o --program passes --expect udp.json";
    tool.refuses(other, 2, &["another packet than this one of the name udp"]);
    for (now, check) in [
        ("runs++; return 3", "recorded return code"),
        ("runs += 2; return 2", "recorded change of runs in each run"),
    ] {
        compile(&tool, "y", &SOURCE.replace("runs++; return 2", now));
        let line = "program y.bpf.o --program counts --expect e.json";
        let record = record(&tool, line, 3);
        let case = case(&record, "counts/udp");
        assert_eq!(case["problems"][0]["check"], check, "{case}");
    }
    compile(
        &tool,
        "z",
        &SOURCE.replace("return ++words[0]", "++words[1]; return 1"),
    );
    let record = record(&tool, "program z.bpf.o --program called --expect e.json", 3);
    let problem = &case(&record, "called/zeros")["problems"][0];
    assert_eq!(problem["check"], "packet of the recorded run", "{problem}");
}

/// A file that says less than it seems to would let everything pass.
#[test]
fn only_a_whole_recording_is_written() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    tool.write("e.json", "of before");
    let line = "program x.bpf.o --program passes --program counts --quick --seed 7";
    let wrong = format!("{line} --expect runs=+2 --record-expected e.json");
    let said = tool.says(&wrong);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.err.contains("e.json is not written"), "{said:?}");
    let kept = std::fs::read_to_string(tool.path("e.json")).expect("it is there");
    assert_eq!(kept, "of before");
    tool.write("none.json", r#"{"schema": 1, "expected": []}"#);
    let nothing = format!("{line} --expect none.json");
    tool.refuses(&nothing, 2, &["none.json", "it expects nothing"]);
}

/// The changes there are not known, and the cost is.
#[test]
fn a_map_that_may_not_be_read_is_no_obstacle() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let write_only = GROWS.replace("} stats SEC", "int (*map_flags)[16]; } stats SEC");
    compile(&tool, "x", &write_only);
    let record = record(&tool, "program x.bpf.o", 0);
    let grows = case(&record, "grows/udp");
    assert_eq!(grows["status"], "ok");
    assert_eq!(grows["observed"]["unread"], serde_json::json!(["stats"]));
}
