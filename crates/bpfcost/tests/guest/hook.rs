//! A person's own programs at their hooks, in guests: each event is cut out of a trace, and its parts are what they are.

use std::{collections::BTreeMap, process::Command};

use bpfcost_model::EventFacts;
use bpfcost_pages::hook::{BODY, DISPATCH, HELPERS, LEAST, MOST};
use bpfcost_record::{CaseRecord, Record};

use crate::{
    kept::record,
    require,
    tool::{Said, Tool, said},
    visit::{assert_nothing_left, command, says},
};

/// The beginning of each source. `MORE` is one instruction.
const PRELUDE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
char LICENSE[] SEC("license") = "GPL";
static unsigned long (*now)(void) = (void *)5;
#ifdef MORE
#define ADD(value) __asm__ volatile("%0 += 1" : "+r"(value))
#else
#define ADD(value)
#endif
"#;

/// Programs of each kind at functions that an open() calls, or that it makes a scheduler call.
const SOURCE: &str = r#"
#define AT(name, section) SEC(section) int name(void *context) \
	{ unsigned long value = now(); ADD(value); __asm__ volatile("" : : "r"(value)); return 0; }
AT(at_kprobe, "kprobe/vfs_open")
AT(at_kretprobe, "kretprobe/vfs_open")
AT(at_kprobe_multi, "kprobe.multi/alloc_empty_file")
AT(at_ksyscall, "ksyscall/openat")
AT(at_tracepoint, "tracepoint/syscalls/sys_exit_openat")
AT(at_fentry, "fentry/do_dentry_open")
AT(at_fexit, "fexit/do_sys_openat2")
AT(at_tp_btf, "tp_btf/sys_exit")
AT(at_lsm, "lsm/file_open")
"#;

const PROGRAMS: [&str; 9] = [
    "at_kprobe",
    "at_kretprobe",
    "at_kprobe_multi",
    "at_ksyscall",
    "at_tracepoint",
    "at_fentry",
    "at_fexit",
    "at_tp_btf",
    "at_lsm",
];

fn compile(tool: &Tool, source: &str, object: &str, options: &[&str]) {
    tool.write("x.c", format!("{PRELUDE}{source}"));
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".to_owned());
    let done = Command::new(clang)
        .args(["-O2", "-g", "-target", "bpf", "-c"])
        .args(options)
        .args([tool.path("x.c"), "-o".into(), tool.path(object)])
        .status();
    assert!(done.expect("clang runs").success());
}

fn run(tool: &Tool, kernel: &str, line: &str) -> (Said, Record) {
    let line = format!("program x.bpf.o --on exact:{kernel} --quick {line}");
    let said = says(tool, &line, "{}");
    let record = record(tool);
    (said, record)
}

fn case<'a>(record: &'a Record, name: &str) -> &'a CaseRecord {
    let mut cases = record.cases.iter();
    cases.find(|case| case.name == name).expect(name)
}

/// A value of all trials of a case, which is the same in each.
fn value(case: &CaseRecord, name: &str) -> u64 {
    let trials: Vec<f64> = case.secondary[name].iter().flatten().copied().collect();
    assert!(trials.len() >= 4, "{}: {trials:?}", case.name);
    assert!(
        trials.iter().all(|one| *one == trials[0]),
        "{}, {name}: {trials:?}",
        case.name
    );
    trials[0] as u64
}

/// Dispatch, body and helpers.
fn parts(case: &CaseRecord) -> [u64; 3] {
    let parts = [DISPATCH, BODY, HELPERS].map(|name| value(case, name));
    let total = case.raw.as_ref().expect("a count").value;
    assert_eq!(parts.iter().sum::<u64>() as f64, total, "{}", case.name);
    parts
}

fn facts(case: &CaseRecord) -> EventFacts {
    let observed = case.observed.clone().expect("what was seen");
    serde_json::from_value(observed).expect("facts of an event")
}

/// One instruction more is found in each kind, in the program and nowhere else, and fails the gate.
fn one_instruction_is_found(kernel: &str) {
    let tool = Tool::new();
    compile(&tool, SOURCE, "x.bpf.o", &["-DMORE"]);
    compile(&tool, SOURCE, "old.bpf.o", &[]);
    let (said, record) = run(
        &tool,
        kernel,
        "--against old.bpf.o --budget 0% --stimulus open",
    );
    assert_eq!(said.code, Some(1), "{said:?}");
    let mut measured = BTreeMap::new();
    for program in PROGRAMS {
        let new = case(&record, program);
        if let Some(reason) = &new.reason {
            assert!(reason.contains("kprobe.multi"), "{program}: {reason}");
            continue;
        }
        let old = case(&record, &format!("{program}/old"));
        let [dispatch, body, helpers] = parts(new);
        assert_eq!(parts(old), [dispatch, body - 1, helpers], "{program}");
        assert!(
            dispatch > 20 && helpers > 20,
            "{program}: {dispatch}, {helpers}"
        );
        // Every event takes the same way. Some of the system calls that this one ends are also for the tracepoint's program.
        if program != "at_tp_btf" {
            assert_eq!(value(new, LEAST), value(new, MOST), "{program}");
        }
        let facts = facts(new);
        let named: u64 = facts.dispatch.iter().map(|one| one.instructions).sum();
        assert_eq!(named, dispatch, "{program}");
        assert_eq!(facts.helpers.len(), 1, "{program}: {:?}", facts.helpers);
        assert_eq!(facts.helpers[0].name, "bpf_ktime_get_ns");
        let lines = facts.reached.expect("it was compiled with -g");
        assert_eq!((lines.reached, lines.first_missed), (lines.all, None));
        measured.insert(program, dispatch + body + helpers);
    }
    assert!(measured.len() >= PROGRAMS.len() - 1, "{measured:?}");
    assert!(
        measured["at_kprobe"] > measured["at_fentry"],
        "{measured:?}"
    );
}

#[test]
fn one_instruction_is_found_in_each_kind_of_hook() {
    if let Some(kernel) = require::kernel() {
        one_instruction_is_found(kernel);
    }
}

/// Functions that a program calls, each with a program of another mechanism and the body that `attach` has: an addition to a
/// counter. As in `attach`, the caller may sleep: within RCU, which has the others do, a program that is entered and left
/// takes 3 instructions less.
const AS_ATTACH: &str = r#"
static long (*node)(void) = (void *)42;
static long (*cgroup)(void) = (void *)80;
static long (*user)(void) = (void *)15;
static long (*boot_time)(void) = (void *)125;
unsigned long hits;
SEC("lsm.s/file_open") int calls(void *context) { node(); cgroup(); user(); boot_time(); return 0; }
#define AT(name, section) SEC(section) int name(void *context) { hits++; return 0; }
AT(kprobe, "kprobe/bpf_get_numa_node_id")
AT(kprobe_multi, "kprobe.multi/bpf_get_current_cgroup_id")
AT(fentry, "fentry/bpf_get_current_uid_gid")
AT(fexit, "fexit/bpf_ktime_get_boot_ns")
"#;

/// A scheduler and a congestion control of TCP, each of which changes nothing, and a program that the network calls behind a
/// pointer.
const STRUCTS: &str = r#"
#define AT(name) SEC("struct_ops/" #name) int name(void *context) \
	{ unsigned long value = now(); ADD(value); __asm__ volatile("" : : "r"(value)); return 2; }
AT(running)
AT(stopping)
AT(threshold)
AT(undo)
AT(grow)
struct sched_ext_ops {
	int (*running)(void *); int (*stopping)(void *); unsigned long long flags; char name[128];
};
struct tcp_congestion_ops {
	int (*ssthresh)(void *); int (*undo_cwnd)(void *); int (*cong_avoid)(void *); char name[16];
};
SEC(".struct_ops.link") struct sched_ext_ops scheduler = {
	.running = running, .stopping = stopping, .name = "scheduler",
};
SEC(".struct_ops.link") struct tcp_congestion_ops congestion = {
	.ssthresh = threshold, .undo_cwnd = undo, .cong_avoid = grow, .name = "congestion",
};
SEC("netfilter") int filter(void *context)
	{ unsigned long value = now(); ADD(value); __asm__ volatile("" : : "r"(value)); return 1; }
"#;

/// The kernel calls the functions of both structs, and the filter; one instruction more is found in each; and two stimuli
/// are cases of their own.
#[test]
fn functions_of_structs_and_a_filter_are_called_by_scheduler_and_network() {
    // Debian's 6.12 has no sched_ext.
    let kernel = "sid";
    if !require::version(kernel, "sid") {
        return;
    }
    let tool = Tool::new();
    compile(&tool, STRUCTS, "x.bpf.o", &["-DMORE"]);
    compile(&tool, STRUCTS, "old.bpf.o", &[]);
    let line = "--against old.bpf.o --budget 0% --at filter=ipv4:output --stimulus context-switch --stimulus tcp-data4";
    let (said, record) = run(&tool, kernel, line);
    assert_eq!(said.code, Some(1), "{said:?}");
    for (program, stimulus, other) in [
        ("running", "context-switch", "tcp-data4"),
        ("stopping", "context-switch", "tcp-data4"),
        ("grow", "tcp-data4", "context-switch"),
        ("filter", "tcp-data4", "context-switch"),
    ] {
        let new = case(&record, &format!("{program}/{stimulus}"));
        let old = case(&record, &format!("{program}/{stimulus}/old"));
        let [dispatch, body, helpers] = parts(new);
        assert_eq!(parts(old), [dispatch, body - 1, helpers], "{program}");
        assert!(
            dispatch > 20 && helpers > 20,
            "{program}: {dispatch}, {helpers}"
        );
        assert_eq!(new.factors["stimulus"], stimulus);
        assert_eq!(facts(new).stimulus, stimulus);
        if stimulus == "tcp-data4" {
            let none = case(&record, &format!("{program}/{other}"));
            let reason = none.reason.as_deref().unwrap_or_default();
            let says = format!("does not lead to {program}");
            assert!(reason.contains(&says), "{reason}");
        }
    }
    assert_nothing_left(&tool);
}

/// Programs that could be run in a loop, at their hooks; one that the lookup of a socket calls; and one before and after a
/// function. The sections of the first two name no hook.
const ON_NETWORK: &str = r#"
#define AT(name, section, result) SEC(section) int name(void *context) \
	{ unsigned long value = now(); ADD(value); __asm__ volatile("" : : "r"(value)); return result; }
AT(device, "xdp", 2)
AT(group, "cgroup_skb/egress", 1)
AT(socket, "sk_lookup", 1)
AT(session, "fsession/tcp_v4_connect", 0)
"#;

/// One instruction more is found in each that the kernel has; the session's runs are two, of one event.
fn one_instruction_is_found_on_the_network(kernel: &str, absent: &[(&str, &str)]) {
    let tool = Tool::new();
    compile(&tool, ON_NETWORK, "x.bpf.o", &["-DMORE"]);
    compile(&tool, ON_NETWORK, "old.bpf.o", &[]);
    let line = "--against old.bpf.o --budget 0% --at device=lo --at group=/ --stimulus tcp4";
    let (said, record) = run(&tool, kernel, line);
    assert_eq!(said.code, Some(1), "{said:?}");
    for (program, runs) in [("device", 1), ("group", 1), ("socket", 1), ("session", 2)] {
        let new = case(&record, program);
        let reason = absent.iter().find(|(name, _)| *name == program);
        if let Some((_, reason)) = reason {
            let said = new.reason.as_deref().unwrap_or_default();
            assert!(said.contains(reason), "{program}: {said}");
            continue;
        }
        let old = case(&record, &format!("{program}/old"));
        let [dispatch, body, helpers] = parts(new);
        assert_eq!(parts(old), [dispatch, body - runs, helpers], "{program}");
        assert!(
            dispatch > 20 && helpers > 20,
            "{program}: {dispatch}, {helpers}"
        );
        let helper = &facts(new).helpers[0];
        assert_eq!(helper.instructions, helpers, "{program}: {helper:?}");
    }
    assert_nothing_left(&tool);
}

#[test]
fn programs_on_the_network_are_measured_where_packets_pass() {
    if require::version("sid", "sid") {
        one_instruction_is_found_on_the_network("sid", &[]);
    }
}

#[test]
fn linux_6_1_has_fewer_hooks_on_the_network() {
    if require::version("bookworm", "6.1") {
        let absent = [
            ("socket", "in the middle of a socket's lookup"),
            ("session", "fsession"),
        ];
        one_instruction_is_found_on_the_network("6.1", &absent);
    }
}

/// Each process of a program that is started enters and leaves a function.
#[test]
fn entries_and_returns_in_files_are_measured() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    // Without a loader and a library, a process takes few instructions. Its first event is dearer than the others.
    const TARGET: &str = r#"
__attribute__((noipa)) void entered(void) {}
void _start(void) { for (int i = 0; i < 8; i++) entered(); __asm__ volatile("syscall" : : "a"(60), "D"(0)); }
"#;
    const SOURCE: &str = r#"
#define AT(name, section) SEC(section) int name(void *context) \
	{ unsigned long value = now(); ADD(value); __asm__ volatile("" : : "r"(value)); return 0; }
AT(enters, "uprobe/" TARGET ":entered")
AT(returns, "uretprobe/" TARGET ":entered")
"#;
    let tool = Tool::new();
    tool.write("target.c", TARGET);
    let target = tool.path("target");
    let done = Command::new("gcc")
        .args(["-O2", "-static", "-nostdlib", "-o"])
        .args([target.clone(), tool.path("target.c")])
        .status();
    assert!(done.expect("gcc runs").success());
    let define = format!("-DTARGET=\"{}\"", target.display());
    compile(&tool, SOURCE, "x.bpf.o", &["-DMORE", &define]);
    compile(&tool, SOURCE, "old.bpf.o", &[&define]);
    let line = format!(
        "--against old.bpf.o --budget 0% --stimulus {}",
        target.display()
    );
    let (said, record) = run(&tool, kernel, &line);
    assert_eq!(said.code, Some(1), "{said:?}");
    for program in ["enters", "returns"] {
        let [dispatch, body, helpers] = parts(case(&record, program));
        let old = parts(case(&record, &format!("{program}/old")));
        assert_eq!(old, [dispatch, body - 1, helpers], "{program}");
    }
    assert_nothing_left(&tool);
}

/// Instructions of an event of each of these mechanisms that the kernel has, by the names that `attach` gives them. A stimulus
/// is found.
pub(crate) fn counted_by_trace(kernel: &str) -> Vec<(&'static str, u64)> {
    let tool = Tool::new();
    compile(&tool, AS_ATTACH, "x.bpf.o", &[]);
    let (said, record) = run(&tool, kernel, "--format csv");
    assert_eq!(said.code, Some(0), "{said:?}");
    let heads = said.out.lines().next().expect("a table");
    assert!(
        heads.ends_with("hook,stimulus,dispatch,body,helpers,least,most,events,slept"),
        "{heads}"
    );
    let [dispatch, body, helpers] = parts(case(&record, "kprobe"));
    let cells = format!(",{dispatch},{body},{helpers},");
    let row = said
        .out
        .lines()
        .find(|row| row.contains(",kprobe,programs,"));
    assert!(row.expect("its row").contains(&cells), "{row:?}");
    let mechanisms = [
        ("kprobe", "kprobe"),
        ("kprobe_multi", "kprobe.multi"),
        ("fentry", "fentry"),
        ("fexit", "fexit"),
    ];
    let counted = |(program, mechanism): (&str, &'static str)| {
        let case = case(&record, program);
        let is_there = case.reason.is_none();
        is_there.then(|| (mechanism, parts(case).iter().sum()))
    };
    mechanisms.into_iter().filter_map(counted).collect()
}

/// A kprobe costs its events and nothing else. What is not there, or not reached, says so.
#[test]
fn nothing_is_paid_beside_the_events_of_a_kprobe() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    const SOURCE: &str = r#"
const volatile int asks = 1;
SEC("kprobe/vfs_open") int opens(void *context) { return asks ? now() : 0; }
SEC("kprobe/no_such_function") int absent(void *context) { return 0; }
SEC("kprobe/tcp_v4_destroy_sock") int by_tcp(void *context) { return 0; }
"#;
    let tool = Tool::new();
    compile(&tool, SOURCE, "x.bpf.o", &[]);
    let (said, record) = run(&tool, kernel, "--stimulus open --set asks=0");
    assert_eq!(said.code, Some(0), "{said:?}");
    let [_, _, helpers] = parts(case(&record, "opens"));
    assert_eq!(helpers, 0, "--set takes the helper out");
    let opens = facts(case(&record, "opens"));
    assert_eq!(opens.stimulus, "open");
    let elsewhere = opens.elsewhere.expect("an open() is the same each time");
    assert_eq!(elsewhere.instructions, 0.0);
    assert_eq!(elsewhere.programs, ["opens", "by_tcp"]);
    let reason = |name: &str| case(&record, name).reason.clone().expect(name);
    assert!(reason("absent").contains("no function no_such_function"));
    assert!(reason("by_tcp").contains("open does not lead to by_tcp"));
    assert!(said.out.contains("Paid by other events"), "{}", said.out);
}

/// Maps are filled before events are counted, and a flame graph has each instruction of an event.
#[test]
fn a_setup_fills_the_maps() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    const SOURCE: &str = r#"
static void *(*lookup)(void *map, const void *key) = (void *)1;
struct { int (*type)[2]; int (*max_entries)[1]; int *key; long *value; } settings SEC(".maps");
SEC("kprobe/vfs_open") int opens(void *context)
{
	int key = 0;
	long *is_on = lookup(&settings, &key);

	if (is_on && *is_on)
		now();
	/* An odd number would have perf take the event too. */
	return 0;
}
"#;
    let tool = Tool::new();
    compile(&tool, SOURCE, "x.bpf.o", &[]);
    tool.write(
        "fill.sh",
        "bpftool map update pinned $BPFCOST_MAPS/settings key 0 0 0 0 value 1 0 0 0 0 0 0 0",
    );
    let line = format!("program x.bpf.o --on exact:{kernel} --quick --stimulus open --out x.json");
    let filled = command(&tool, &line)
        .args(["--setup", "sh fill.sh", "--svg", "x.svg"])
        .output();
    let filled = said(&filled.expect("it runs"));
    assert_eq!(filled.code, Some(0), "{filled:?}");
    let record = record(&tool);
    let opens = case(&record, "opens");
    let helpers = facts(opens).helpers;
    assert_eq!(helpers[0].name, "bpf_ktime_get_ns", "{helpers:?}");
    let total: u64 = parts(opens).iter().sum();
    let svg = std::fs::read_to_string(tool.path("x.svg")).expect("a flame graph");
    for named in [
        format!("opens ({total} instructions"),
        "bpf_ktime_get_ns (".to_owned(),
    ] {
        assert!(svg.contains(&named), "{named}");
    }
    assert_nothing_left(&tool);
}

/// The exit code is that of what the user named.
#[test]
fn a_command_that_fails_is_told() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    compile(&tool, SOURCE, "x.bpf.o", &[]);
    let line = "--program at_kprobe --stimulus false --quick";
    let line = format!("program x.bpf.o --on exact:{kernel} {line}");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(5), "{said:?}");
    said.complains(&["false failed: exit status: 1", "Try it by hand"]);
    assert_nothing_left(&tool);
}
