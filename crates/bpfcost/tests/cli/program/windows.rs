//! Programs that run in windows.

use super::{case, compile, record};
use crate::{require, tool::Tool};

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
        ("--also none[0]=drops", &["no program array none", "next"]),
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

/// Their costs would differ by the clock readings alone.
#[test]
fn both_objects_get_windows_of_the_same_length() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    compile(&tool, "new", DISPATCH);
    compile(
        &tool,
        "old",
        &DISPATCH.replace("tail_call(context, &next, 0); ", ""),
    );
    let line = "program new.bpf.o --against old.bpf.o --program dispatches --also next[0]=drops";
    let compared = record(&tool, line, 0);
    for name in ["dispatches/udp", "dispatches/udp/old"] {
        let window = &case(&compared, name)["observed"]["window"];
        assert_eq!(*window, 16, "{name}");
    }
    // Alone, it has longer ones, or none at all.
    let alone = record(&tool, "program old.bpf.o --program dispatches", 0);
    assert!(case(&alone, "dispatches/udp")["observed"]["window"].is_null());
}

#[test]
fn a_map_of_numbers_takes_no_programs() {
    let tool = Tool::new();
    let numbers = "} next SEC(\".maps\"), stats SEC(\".maps\");";
    compile(
        &tool,
        "x",
        &DISPATCH
            .replace("} next SEC(\".maps\");", numbers)
            .replace("int (*type)[3]", "int (*type)[2]"),
    );
    let line = "program x.bpf.o --program drops --also stats[0]=drops";
    tool.refuses(line, 2, &["no program array stats"]);
}
