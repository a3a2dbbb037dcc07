//! People's own programs: measured as they are, compared with each other, or refused with a reason.

use std::process::Command;

use serde_json::Value;

use crate::{require, tool::Tool};

/// Where Debian's libxdp1 has its programs.
const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/bpf";

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
unsigned long runs;
SEC("xdp") int passes(void *context) { return 2; }
SEC("xdp") int counts(void *context) { runs++; return 2; }
SEC("xdp") int drops_some(void *context) { return ++runs % 100000 ? 2 : 1; }
SEC("tc") int accepts(void *context) { return 0; }
SEC("raw_tp/sys_enter") int enters(unsigned long *arguments) { return arguments[1] == 0; }
SEC("syscall") int called(unsigned long *words) { return ++words[0]; }
SEC("kprobe/tcp_sendmsg") int at_kprobe(void *context) { return 0; }
static long (*print)(const char *text, unsigned int size, ...) = (void *)6;
SEC("xdp") int prints(void *context) { char text[] = "x"; print(text, 2); return 2; }
"#;

/// Is wrong in every second run, unless a constant and a map are set.
const CONFIGURED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
const volatile unsigned short allowed = 7;
unsigned long runs;
struct { int (*type)[1]; int (*max_entries)[1]; unsigned char *key; unsigned int *value; } limits SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int configured(void *context)
{
	unsigned char second = 2;
	unsigned int *limit = lookup(&limits, &second);

	if (allowed == 300 && limit && *limit == 9)
		return 3;
	return 1 + (++runs & 1);
}
"#;

const KPROBE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
SEC("kprobe/tcp_sendmsg") int at_kprobe(void *context) { return 0; }
"#;

/// Compiles a source to `NAME.bpf.o` in the tool's folder, as people do, without headers.
fn compile(tool: &Tool, name: &str, source: &str) {
    tool.write(&format!("{name}.c"), source);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .arg(tool.path(&format!("{name}.c")))
        .arg("-o")
        .arg(tool.path(&format!("{name}.bpf.o")))
        .status();
    assert!(done.expect("clang runs").success());
}

/// The record of a run that ends with this code.
fn record(tool: &Tool, line: &str, code: i32) -> Value {
    let said = tool.says(&format!("{line} --quick --seed 7 --format json"));
    assert_eq!(said.code, Some(code), "{}", said.err);
    serde_json::from_str(&said.out).expect("a record")
}

fn case<'a>(record: &'a Value, name: &str) -> &'a Value {
    let mut cases = record["cases"].as_array().expect("cases").iter();
    cases.find(|case| case["name"] == name).expect(name)
}

#[test]
fn a_program_of_debian_is_measured_as_it_is() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let packets = "--input builtin:udp --input builtin:tcp";
    let record = record(
        &tool,
        &format!("program {DEBIAN}/xdpfilt_dny_udp.o {packets}"),
        0,
    );
    assert_eq!(record["experiment"], "program");
    for name in ["xdpfilt_dny_udp/udp", "xdpfilt_dny_udp/tcp"] {
        let case = case(&record, name);
        assert_eq!(case["status"], "ok", "{case}");
        assert!(case["net"].is_object(), "{case}");
        let instructions = &case["secondary"]["verified_instructions"][0][0];
        assert!(instructions.as_f64() > Some(100.0), "{case}");
    }
    let path = tool.path("r.json");
    tool.write("r.json", record.to_string());
    let page = tool.answers(&format!("report {} -o r.md", path.display()));
    assert_eq!(page, "");
    let page = std::fs::read_to_string(tool.path("r.md")).expect("a page");
    assert!(page.contains("Verification and memory"), "{page}");
}

/// A change that no kernel takes must not pass a gate.
#[test]
fn a_budget_is_not_kept_by_a_program_that_is_rejected() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "old", SOURCE);
    let rejected = "return *(volatile int *)((char *)context + 200)";
    compile(&tool, "new", &SOURCE.replace("runs++; return 2", rejected));
    let said = tool.says(
        "program new.bpf.o --against old.bpf.o --program counts --budget 0% --quick --seed 7",
    );
    assert_eq!(said.code, Some(4), "{said:?}");
    let judged = said
        .err
        .contains("counts/udp is not judged by the budget: ");
    assert!(judged, "{said:?}");
}

#[test]
fn two_builds_are_compared_in_one_run() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "old", SOURCE);
    compile(
        &tool,
        "new",
        &SOURCE.replace("runs++; return 2", "runs += 3; return 2"),
    );
    let line = "program new.bpf.o --against old.bpf.o --program counts --program accepts";
    let record = record(&tool, line, 0);
    let compared: Vec<(&str, &str)> = record["comparisons"]
        .as_array()
        .expect("comparisons")
        .iter()
        .map(|one| {
            (
                one["case"].as_str().unwrap(),
                one["baseline"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("counts/udp", "counts/udp/old"),
        ("accepts/udp", "accepts/udp/old"),
    ];
    assert_eq!(compared, wanted);
}

/// Each gets the input that it takes.
#[test]
fn programs_with_contexts_are_measured() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let programs = "--program enters --program called --program passes";
    let record = record(&tool, &format!("program x.bpf.o {programs}"), 0);
    for name in ["enters/zeros", "called/zeros", "passes/udp"] {
        assert_eq!(case(&record, name)["status"], "ok");
    }
    assert_eq!(record["cases"].as_array().map(Vec::len), Some(9));
}

/// Without both, the program returns another code in each second run, and is invalid.
#[test]
fn variables_and_maps_are_those_of_the_command_line() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", CONFIGURED);
    tool.write(
        "limits.json",
        r#"[{"key": 1, "value": 8}, {"key": ["0x02"], "value": 9}]"#,
    );
    let set = "--set allowed=300 --map limits:max_entries=2 --map limits=limits.json";
    let set = record(&tool, &format!("program x.bpf.o {set}"), 0);
    assert_eq!(case(&set, "configured/udp")["status"], "ok");
    // Its second entry finds no room.
    let small = tool.says("program x.bpf.o --map limits=limits.json --quick");
    assert_eq!(small.code, Some(4), "{}", small.err);
    assert!(
        small.err.contains("entry 2 of 2 of the map limits"),
        "{}",
        small.err
    );
    for (line, says) in [
        ("--set forbidden=1", &["no variable forbidden"][..]),
        ("--set allowed=ten", &["ten is not a whole number"]),
        ("--set allowed=70000", &["allowed has room for"]),
        ("--map none=limits.json", &["no map none", "limits"]),
        ("--map limits", &["NAME=FILE"]),
        ("--map limits=none.json", &["none.json", "No such file"]),
        ("--map limits:max_entries=x", &["max_entries"]),
        ("--map limits=x.c", &["x.c", "not JSON"]),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
}

/// One wrong code in 100,000 runs.
#[test]
fn a_program_whose_answer_changes_has_no_number() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let record = record(&tool, "program x.bpf.o --program drops_some", 3);
    let case = case(&record, "drops_some/udp");
    assert_eq!(case["status"], "invalid");
    assert_eq!(case["problems"][0]["check"], "return codes");
    assert!(case["raw"].is_null());
}

#[test]
fn what_can_be_run_is_planned_without_privilege() {
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let said = tool.says("program x.bpf.o --program accepts --program passes --dry-run");
    assert_eq!(said.code, Some(0), "{}", said.err);
    for name in [
        "accepts/udp",
        "passes/udp",
        "floor/none/tc",
        "floor/none/xdp",
    ] {
        assert!(said.out.contains(name), "{}", said.out);
    }
    let said = tool.says("program x.bpf.o --dry-run");
    assert!(said.err.contains("not measured: at_kprobe"), "{}", said.err);
}

#[test]
fn mistakes_say_what_to_do() {
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    compile(&tool, "kprobe", KPROBE);
    tool.write("text.bpf.o", "text");
    tool.write("text.pcap", "text");
    for (line, says) in [
        ("none.bpf.o", &["none.bpf.o", "cannot read it"][..]),
        ("text.bpf.o", &["not a BPF object", "clang"]),
        ("kprobe.bpf.o", &["bpfcost overhead kprobe.bpf.o:at_kprobe"]),
        (
            "x.bpf.o --program at_kprobe",
            &["bpfcost overhead x.bpf.o:at_kprobe"],
        ),
        ("x.bpf.o --program pass", &["no program pass", "passes"]),
        (
            "x.bpf.o --against kprobe.bpf.o",
            &["kprobe.bpf.o", "has none of these programs: passes"],
        ),
        (
            "x.bpf.o --program passes --program passes",
            &["named twice"],
        ),
        ("x.bpf.o --input text.pcap", &["text.pcap", "not a capture"]),
        ("x.bpf.o --input builtin:arp", &["builtin:syn6"]),
        ("x.bpf.o --input 00", &["14 to 3500"]),
        (
            "x.bpf.o --program called --input builtin:udp",
            &["take a context"],
        ),
        (
            "x.bpf.o --program passes --input builtin:zeros",
            &["take a packet"],
        ),
        ("x.bpf.o --case none/udp", &["no case of program matches"]),
    ] {
        tool.refuses(&format!("program {line}"), 2, says);
    }
    if require::host() {
        let line = "program x.bpf.o --program prints";
        tool.refuses(line, 2, &["bpf_trace_printk", "--allow-effects"]);
    }
}

/// The first program of a type must not run by accident, and the second can't be run on its own.
const UNLIKE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
static long (*print)(const char *text, unsigned int size, ...) = (void *)6;
SEC("xdp") int a_prints(void *context) { char text[] = "x"; print(text, 2); return 2; }
SEC("xdp/devmap") int at_devmap(void *context) { return 2; }
SEC("xdp") int passes(void *context) { return 2; }
"#;

#[test]
fn what_one_program_lacks_does_not_keep_others_from_their_net() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "unlike", UNLIKE);
    let chosen = record(
        &tool,
        "program unlike.bpf.o --case passes/udp --out a.json",
        0,
    );
    assert!(case(&chosen, "passes/udp")["net"].is_object(), "{chosen}");
    let both = "--program at_devmap --program passes";
    let some = record(
        &tool,
        &format!("program unlike.bpf.o {both} --out b.json"),
        0,
    );
    let lacking = case(&some, "at_devmap/udp");
    assert_eq!(lacking["status"], "unsupported", "{lacking}");
    assert!(case(&some, "passes/udp")["net"].is_object(), "{some}");
}

#[test]
fn costs_of_other_packets_and_settings_are_not_compared() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "own", SOURCE);
    let run = |byte: &str, more: &str| {
        let packet = byte.repeat(64);
        format!("program own.bpf.o --program passes --input {packet} --quick --seed 7 {more}")
    };
    tool.answers(&run("00", "--out old.json"));
    let said = tool.says(&run("ff", "--out new.json --baseline old.json"));
    assert_eq!(said.code, Some(2), "{said:?}");
    said.complains(&[
        "passes/packet was measured with another given",
        "measure both sides alike",
    ]);
    assert!(!tool.names().contains(&"new.json".to_owned()));
    let said = tool.says(&run(
        "00",
        "--set runs=7 --out new.json --baseline old.json",
    ));
    assert_eq!(said.code, Some(2), "{said:?}");
    let said = tool.says(&run(
        "00",
        "--out new.json --baseline old.json --threshold 90%",
    ));
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[test]
fn a_program_that_is_new_is_not_compared() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(
        &tool,
        "old",
        KPROBE.replace("kprobe/tcp_sendmsg", "xdp").as_str(),
    );
    let added = format!(
        "{}\nSEC(\"xdp\") int added(void *context) {{ return 2; }}\n",
        KPROBE.replace("kprobe/tcp_sendmsg", "xdp")
    );
    compile(&tool, "new", &added);
    let line = "program new.bpf.o --against old.bpf.o --dry-run";
    let said = tool.says(line);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("has no such program: added"), "{said:?}");
    assert!(
        said.out.contains("at_kprobe/udp/old") && !said.out.contains("added/udp"),
        "{said:?}"
    );
}

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

/// Its codes are all the same, and its cost is not that of one state.
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
}

/// What was recorded of a program holds for it, and not for one that does something else.
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

/// Drops packets of more than 1,000 bytes.
const LENGTHS: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct xdp { unsigned int data, end; };
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } runs SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int by_length(struct xdp *context) { return context->end - context->data > 1000 ? 1 : 2; }
SEC("xdp") int rarely_drops(struct xdp *context)
{
	unsigned int first = 0;
	unsigned long *count = lookup(&runs, &first);

	if (count && ++*count % 1000 == 0)
		return 0;
	return by_length(context);
}
SEC("tc") int accepts(void *context) { return 0; }
SEC("socket") int keeps(void *context) { return 1; }
"#;

#[test]
fn packets_take_turns_in_one_case() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", LENGTHS);
    let packets = "--input builtin:udp --input builtin:tcp --mix";
    let line =
        format!("program x.bpf.o --program by_length --program accepts --program keeps {packets}");
    let mixed = record(&tool, &line, 0);
    for name in [
        "by_length/udp",
        "by_length/tcp",
        "by_length/mix",
        "accepts/mix",
    ] {
        let case = case(&mixed, name);
        assert_eq!(case["status"], "ok", "{case}");
        assert!(case["net"].is_object(), "{case}");
    }
    let cases = mixed["cases"].as_array().expect("cases");
    assert!(cases.iter().all(|case| case["name"] != "keeps/mix"));
    let wrong = record(
        &tool,
        &format!("program x.bpf.o --program rarely_drops {packets} --case */mix"),
        3,
    );
    let problem = &case(&wrong, "rarely_drops/mix")["problems"][0];
    assert_eq!(problem["check"], "return codes");
    assert!(
        problem["got"]
            .as_str()
            .is_some_and(|got| got.contains("at last 0, where ")),
        "{problem}"
    );
    for (line, says) in [
        (
            "--program by_length --mix",
            &["--mix", "at least two packets", "--input"][..],
        ),
        (
            "--program keeps --input builtin:udp --input builtin:tcp --mix",
            &["socket programs"],
        ),
        (
            "--program accepts --input builtin:udp --input builtin:syn6 --mix",
            &["the protocol"],
        ),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
}

const DISPATCH: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[3]; int (*max_entries)[1]; int (*key_size)[4]; int (*value_size)[4]; } next SEC(".maps");
static long (*tail_call)(void *context, void *map, unsigned int slot) = (void *)12;
SEC("xdp") int drops(void *context) { return 1; }
SEC("xdp") int dispatches(void *context) { tail_call(context, &next, 0); return 2; }
"#;

#[test]
fn programs_that_make_tail_calls_run_in_windows() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", DISPATCH);
    let called = record(&tool, "program x.bpf.o --also next[0]=drops", 0);
    let dispatches = case(&called, "dispatches/udp");
    assert_eq!(
        (
            &dispatches["observed"]["code"],
            &dispatches["observed"]["window"]
        ),
        (&1.into(), &16.into())
    );
    for name in ["dispatches/udp", "drops/udp"] {
        assert_eq!(case(&called, name)["status"], "ok");
        assert!(case(&called, name)["net"].is_object(), "{called}");
    }
    assert!(case(&called, "drops/udp")["observed"]["window"].is_null());
    let warnings = called["warnings"].to_string();
    assert!(
        warnings.contains("dispatches makes tail calls or leaves a loop no stack"),
        "{warnings}"
    );
    let alone = record(&tool, "program x.bpf.o --program dispatches", 0);
    assert_eq!(case(&alone, "dispatches/udp")["observed"]["code"], 2);
    for (line, says) in [
        ("--also next=drops", &["MAP[SLOT]=PROGRAM"][..]),
        ("--also none[0]=drops", &["no map none", "next"]),
        ("--also next[0]=none", &["no program none", "drops"]),
        (
            "--mix --program dispatches --input builtin:udp --input builtin:tcp",
            &["runs in windows"],
        ),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
    // There is one slot.
    let said = tool.says("program x.bpf.o --also next[1]=drops --quick");
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["slot 1 of the map next"]);
}

/// Passes what a loader has put into an array.
const LOADED: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
struct { int (*type)[2]; int (*max_entries)[1]; unsigned int *key; unsigned long *value; } verdicts SEC(".maps");
static void *(*lookup)(void *map, const void *key) = (void *)1;
SEC("xdp") int judges(void *context)
{
	unsigned int first = 0;
	unsigned long *verdict = lookup(&verdicts, &first);

	return verdict ? *verdict : 0;
}
"#;

/// As people write one, here with bpftool.
const LOADER: &str = "#!/bin/sh
echo \"$BPFCOST_MAPS\" >>where
ls \"$BPFCOST_MAPS\" >names
exec bpftool map update pinned \"$BPFCOST_MAPS/verdicts\" key 0 0 0 0 value 3 0 0 0 0 0 0 0
";

fn executable(tool: &Tool, name: &str, text: &str) {
    tool.write(name, text);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tool.path(name), mode).expect("it is a file");
}

#[test]
fn a_loader_fills_maps_before_programs_run() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", LOADED);
    executable(&tool, "load", LOADER);
    let loaded = record(&tool, "program x.bpf.o --setup ./load", 0);
    assert_eq!(case(&loaded, "judges/udp")["observed"]["code"], 3);
    let text = |name: &str| std::fs::read_to_string(tool.path(name)).expect(name);
    assert!(
        text("names").lines().any(|name| name == "verdicts"),
        "{}",
        text("names")
    );
    // Gone with the process that had them, wherever they were.
    for place in text("where").lines() {
        assert!(!std::path::Path::new(place).exists(), "{place}");
    }
    let alone = record(&tool, "program x.bpf.o", 0);
    assert_eq!(case(&alone, "judges/udp")["observed"]["code"], 0);
    assert_ne!(
        case(&alone, "judges/udp")["factors"]["given"],
        case(&loaded, "judges/udp")["factors"]["given"]
    );
    executable(&tool, "fails", "#!/bin/sh\necho no such flow >&2\nexit 7\n");
    let fails = [
        "--setup ./fails ended with exit code 7",
        "no such flow",
        "$BPFCOST_MAPS",
    ];
    tool.refuses("program x.bpf.o --quick --setup ./fails", 2, &fails);
    let none = "program x.bpf.o --quick --setup ./none";
    tool.refuses(none, 4, &["--setup ./none: there is no program ./none"]);
}

/// Neither the loader nor the maps: both are of the process that is killed.
#[test]
fn a_kill_leaves_no_loader_and_no_map() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "x", &LOADED.replace("verdicts", "killed_verdict"));
    executable(
        &tool,
        "waits",
        "#!/bin/sh\necho $$ >pid.tmp\nmv pid.tmp pid\nexec sleep 1000\n",
    );
    let mut killed = tool
        .command("program x.bpf.o --setup ./waits")
        .spawn()
        .expect("it starts");
    let maps = || {
        let list = Command::new("bpftool").args(["map", "list"]).output();
        let list = String::from_utf8(list.expect("bpftool runs").stdout).expect("text");
        list.matches("name killed_verdict ").count()
    };
    let pid = until(|| {
        assert!(
            killed.try_wait().expect("a child").is_none(),
            "it has ended"
        );
        std::fs::read_to_string(tool.path("pid")).ok()
    });
    assert_eq!(maps(), 1);
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let process = std::path::Path::new("/proc").join(pid.trim());
    until(|| (!process.exists() && maps() == 0).then_some(()));
}

/// What comes to be, sooner or later.
fn until<T>(mut there: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(there) = there() {
            return there;
        }
        // No machine is so slow: the test would hang.
        assert!(begun.elapsed().as_secs() < 600, "it takes too long");
        std::thread::yield_now();
    }
}
