//! Help texts, and the commands that measure nothing, word for word.

use std::time::Instant;

use crate::tool::Tool;

/// The commands that people type; the first is the program itself.
const COMMANDS: [&str; 19] = [
    "",
    "check",
    "list",
    "run",
    "overhead",
    "program",
    "probe",
    "user",
    "top",
    "stack",
    "compare",
    "report",
    "self-test",
    "init-ci",
    "kernel",
    "kernel add",
    "kernel build",
    "kernel list",
    "kernel remove",
];

#[test]
fn help() {
    // Those of kernel stand beside its tests.
    for command in COMMANDS.iter().filter(|name| !name.starts_with("kernel")) {
        let text = Tool::new().answers(&format!("{command} --help"));
        let name = if command.is_empty() {
            "bpfcost"
        } else {
            command
        };
        insta::assert_snapshot!(format!("help_{name}"), text);
    }
}

#[test]
fn version_names_commit_build_and_libbpf() {
    let tool = Tool::new();
    let short = concat!("bpfcost ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(tool.answers("-V"), short);
    let long = tool.answers("--version");
    let rest = long.strip_prefix(short).expect("the same first line");
    let keys = rest
        .lines()
        .map(|line| line.split_once(": ").map(|(key, _)| key));
    let keys: Vec<_> = keys.flatten().collect();
    assert_eq!(keys, ["commit", "build", "libbpf"], "{long}");
    assert!(long.contains("x86_64-linux, dynamic"), "{long}");
}

#[test]
fn short_help_fits_on_a_screen_of_40_lines() {
    for command in COMMANDS {
        let text = Tool::new().answers(&format!("{command} -h"));
        let lines = text.lines().count();
        assert!(lines <= 40, "bpfcost {command} -h has {lines} lines");
    }
}

#[test]
fn lists() {
    let tool = Tool::new();
    let begun = Instant::now();
    insta::assert_snapshot!("list", tool.answers("list"));
    println!("bpfcost list took {:.1?}", begun.elapsed());
    insta::assert_snapshot!("list_xdp-lb", tool.answers("list xdp-lb"));
    assert_eq!(tool.names(), [""; 0], "looking leaves nothing behind");
}

#[test]
fn lists_for_programs() {
    let tool = Tool::new();
    let json =
        |line| -> serde_json::Value { serde_json::from_str(&tool.answers(line)).expect("JSON") };
    let mut experiments = json("list --format json");
    for one in experiments.as_array_mut().expect("an array") {
        let cases = one.as_object_mut().and_then(|one| one.remove("cases"));
        assert!(cases.is_some_and(|cases| cases.as_u64() > Some(0)));
    }
    let listed = include_str!("../../../console/experiments.json");
    let listed: serde_json::Value = serde_json::from_str(listed).expect("JSON");
    assert_eq!(
        listed, experiments,
        "crates/console/experiments.json lists others"
    );
    let cases = json("list xdp-lb --format json");
    let cases = cases.as_array().expect("an array");
    assert!(cases.iter().any(|case| case["name"] == "tcp-v4-lru-hit"));
    // 4 where something is missing: that is an answer too.
    let check = tool.says("check --format json").out;
    let check: serde_json::Value = serde_json::from_str(&check).expect("JSON");
    assert!(check[0]["state"].is_string());
    let features = json("check --features --format json");
    let features = features.as_array().expect("an array");
    let kprobe = |one: &&serde_json::Value| one["name"] == "kprobe.multi";
    let kprobe = features.iter().find(kprobe).expect("kprobe.multi");
    assert_eq!(kprobe["since"], "5.18");
    assert_eq!(kprobe["config"], "CONFIG_FPROBE");
    assert!(kprobe["missing"].is_null() || kprobe["missing"].is_string());
}

#[test]
fn dry_runs() {
    let tool = Tool::new();
    let said = tool.answers("run xdp-lb --dry-run --time 60s");
    // The last line is for users without privilege.
    let said = said.split("measuring needs").next().unwrap_or_default();
    insta::assert_snapshot!("dry_run", said);
    let short = tool.answers("run xdp-lb --dry-run --time 1s --case pass-non-ip");
    assert!(short.contains("is probably too short"), "{short}");
    assert_eq!(tool.names(), [""; 0]);
}
