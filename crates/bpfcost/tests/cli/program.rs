//! People's own programs: measured as they are, compared with each other, or refused with a reason.

mod expected;
mod given;
mod loader;
mod refused;
mod turns;
mod windows;

use std::process::Command;

use serde_json::Value;

use crate::{require, running::Running, tool::Tool};

/// Folder of the programs in Debian's libxdp1.
const DEBIAN: &str = "/usr/lib/x86_64-linux-gnu/bpf";

pub(crate) const SOURCE: &str = r#"
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
pub(crate) fn compile(tool: &Tool, name: &str, source: &str) {
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
pub(crate) fn record(tool: &Tool, line: &str, code: i32) -> Value {
    let said = tool.says(&format!("{line} --quick --seed 7 --format json"));
    assert_eq!(said.code, Some(code), "{}", said.err);
    serde_json::from_str(&said.out).expect("a record")
}

pub(crate) fn case<'a>(record: &'a Value, name: &str) -> &'a Value {
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
    tool.write("second.csv", "key,value\n02,9\n");
    tool.write("first.json", r#"[{"key": 1, "value": 8}]"#);
    let set = "--set allowed=300 --map limits:max_entries=2 --map limits=first.json --map limits=second.csv";
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
    tool.write("wrong.csv", "1");
    for (line, says) in [
        ("--set forbidden=1", &["no variable forbidden"][..]),
        ("--set allowed=ten", &["ten is not a whole number"]),
        ("--set allowed=70000", &["allowed has room for"]),
        ("--map none=limits.json", &["no map none", "limits"]),
        ("--map limits", &["NAME=FILE"]),
        ("--map limits=none.json", &["none.json", "No such file"]),
        ("--map limits:max_entries=x", &["max_entries"]),
        ("--map limits=x.c", &["x.c", "not JSON"]),
        (
            "--map limits=wrong.csv",
            &["wrong.csv", "line 1 has 1 cell"],
        ),
    ] {
        tool.refuses(&format!("program x.bpf.o {line}"), 2, says);
    }
}

/// What goes on has nothing but the plan.
#[test]
fn variables_hold_in_a_run_that_is_continued() {
    if !require::host() {
        return;
    }
    const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
const volatile int verdict = 1;
SEC("xdp") int decides(void *context) { return verdict; }
"#;
    let tool = Tool::new();
    compile(&tool, "x", SOURCE);
    let mut run = Running::start(&tool, "program x.bpf.o --set verdict=3 --quick");
    run.until(|journal| journal.contains('\n'));
    run.kill();
    tool.answers("run --resume x.json --format json");
    let text = std::fs::read_to_string(tool.path("x.json")).expect("a record");
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(case(&whole, "decides/udp")["observed"]["code"], 3);
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
    assert!(
        said.err.contains("at_kprobe runs at a kprobe"),
        "{}",
        said.err
    );
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
        ("x.bpf.o --program passes --input 00", &["14 to 3520"]),
        (
            "x.bpf.o --program called --input builtin:udp",
            &["take a context"],
        ),
        (
            "x.bpf.o --program passes --input builtin:zeros",
            &["take a packet"],
        ),
        ("x.bpf.o --case none/udp", &["no case of program matches"]),
        (
            "x.bpf.o --hot-spots",
            &["can't be traced on host", "--on exact:"],
        ),
        (
            "x.bpf.o --hot-spots --on exact:6.12 --on vm:6.12",
            &["can't be traced on vm:6.12"],
        ),
    ] {
        tool.refuses(&format!("program {line}"), 2, says);
    }
    if require::host() {
        let line = "program x.bpf.o --program prints";
        tool.refuses(line, 2, &["bpf_trace_printk", "--allow-effects"]);
    }
}

/// The first program of a type must not run by accident, and the verifier rejects the second.
const UNLIKE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
static long (*print)(const char *text, unsigned int size, ...) = (void *)6;
SEC("xdp") int a_prints(void *context) { char text[] = "x"; print(text, 2); return 2; }
SEC("xdp") int is_rejected(void *context) { return *(volatile int *)((char *)context + 200); }
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
    let both = "--program is_rejected --program passes";
    let some = record(
        &tool,
        &format!("program unlike.bpf.o {both} --out b.json"),
        0,
    );
    let lacking = case(&some, "is_rejected/udp");
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
