//! Ways to attach, counted in exact guests: all that a kernel has, the same in two boots.

use std::collections::BTreeMap;

use bpfcost_record::{Record, Status};

use crate::{
    hook::counted_by_trace,
    kept::record,
    require,
    tool::{Tool, said},
    visit::{self, assert_nothing_left, says},
};

/// Cases that copy the packet: the way that the copy takes goes by the low bits of its address, and those by
/// the boot.
const COPIES: [&str; 2] = ["xdp-generic/empty", "xdp-native-veth-skb/empty"];

fn counted(cases: &[&str], kernel: &str) -> Record {
    counted_with(cases, kernel, "{}")
}

fn counted_with(cases: &[&str], kernel: &str, hooks: &str) -> Record {
    let tool = Tool::new();
    let globs: String = cases.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run attach{globs} --on exact:{kernel} --quick");
    let said = says(&tool, &line, hooks);
    assert_eq!(said.code, Some(0), "{said:?}");
    record(&tool)
}

/// Instructions an event, by case.
fn nets(record: &Record) -> BTreeMap<&str, f64> {
    let net = |case: &bpfcost_record::CaseRecord| case.net.as_ref()?.value;
    let cases = record.cases.iter().filter(|case| case.status == Status::Ok);
    cases
        .filter_map(|case| Some((case.name.as_str(), net(case)?)))
        .collect()
}

/// Counts of two boots, where the second meets `again`.
fn boots(cases: &[&str], again: &[&str], kernel: &str) -> [Record; 2] {
    // A hook has the second one boot, where the first may have gone on from an earlier boot. It leaves the kernel alone.
    let boots = r#"{"before": ":"}"#;
    [counted(cases, kernel), counted_with(again, kernel, boots)]
}

fn assert_equal([one, other]: &[Record; 2]) {
    let (one, other) = (nets(one), nets(other));
    for (name, second) in &other {
        let first = one[name];
        let apart = (first - second).abs();
        let allowed = match name {
            name if COPIES.contains(name) || name.ends_with("/stack") => 0.01 * first,
            name if name.ends_with("/empty") => 0.0,
            _ => 0.001 * first,
        };
        // A count that is no whole number is known to the clock's rounding.
        assert!(
            apart <= allowed + 0.05,
            "{name}: {first} in one boot, {second} in the other"
        );
    }
}

/// Number of ways with a count of the program that does nothing.
fn ways(record: &Record) -> usize {
    let nets = nets(record);
    nets.keys().filter(|name| name.ends_with("/empty")).count()
}

#[test]
fn every_way_in_the_kernel_is_counted_alike_by_boots_and_by_a_trace() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let cases = [
        "f*/empty",
        "k*/empty",
        "r*/empty",
        "t*/empty",
        "lsm/empty",
        "cgroup_skb/empty",
        "netfilter/empty",
        "xdp-*/empty",
        "perf_event/empty",
        "fentry/map",
        "fentry/hash",
        "fentry/ringbuf*",
        "kprobe/empty/stats",
        "raw_tp/*",
    ];
    // One of each mechanism the second time, but those that are traced below. Attaching kprobe.multi-all takes half of the
    // first boot's time.
    let again = [
        "fentry/empty",
        "fentry/map",
        "fentry/hash",
        "fentry/ringbuf*",
        "kprobe-*/empty",
        "kprobe/empty/stats",
        "kretprobe/empty",
        "raw_tp/*",
        "tracepoint/empty",
        "tcx/empty",
        "xdp-generic/empty",
        "xdp-native/empty",
    ];
    let records = boots(&cases, &again, kernel);
    assert_equal(&records);
    let counted = records.each_ref().map(ways);
    assert!(counted[0] >= 26 && counted[1] >= 8, "{counted:?}");
    // The same mechanisms and bodies in a third boot.
    assert_traced_alike(kernel, &records[0]);
}

/// The same mechanisms and bodies, one event at a time.
fn assert_traced_alike(kernel: &str, counted: &Record) {
    let nets = nets(counted);
    let traced = counted_by_trace(kernel);
    assert!(traced.len() >= 3, "{traced:?}");
    for (mechanism, instructions) in traced {
        let attached = nets[format!("{mechanism}/empty").as_str()];
        assert!(
            (attached - instructions as f64).abs() <= 0.05,
            "{mechanism} on {kernel}: {attached} by attach, {instructions} in a trace"
        );
    }
}

#[test]
fn other_kernels_are_counted_alike_by_attach_and_by_a_trace() {
    for (kernel, suite) in [("6.1", "bookworm"), ("sid", "sid")] {
        if require::version(kernel, suite) {
            let cases = [
                "fentry/empty",
                "fexit/empty",
                "kprobe/empty",
                "kprobe.multi/empty",
            ];
            assert_traced_alike(kernel, &counted(&cases, kernel));
        }
    }
}

/// The same cases both times: the kernel walks to a uprobe's site through the mappings of this process, and more cases
/// have more of those.
#[test]
fn every_way_in_a_process_is_counted_and_two_boots_agree() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let cases = [
        "uprobe*/empty",
        "uretprobe*/empty",
        "usdt*/empty",
        "user-uprobe-nop/empty",
        "user-uretprobe-push/empty",
    ];
    let records = boots(&cases, &cases, kernel);
    assert_equal(&records);
    let counted = records.each_ref().map(ways);
    assert!(counted[0] >= 16 && counted[0] == counted[1], "{counted:?}");
}

#[test]
fn the_newest_kernel_has_sessions_and_links_to_many() {
    if !require::version("sid", "sid") {
        return;
    }
    let cases = [
        "fsession/empty",
        "*entry.multi/empty",
        "fexit.multi/*",
        "fsession.multi/empty",
        "uprobe.session/empty",
        "kprobe.session/empty",
    ];
    let record = counted(&cases, "sid");
    let counts = nets(&record);
    for name in [
        "fsession/empty",
        "fentry.multi/empty",
        "fexit.multi/map",
        "fsession.multi/empty",
        "uprobe.session/empty",
        "kprobe.session/empty",
    ] {
        assert!(counts.get(name).is_some_and(|count| *count > 0.0), "{name}");
    }
}

/// Code at a uprobe's site on the kernel that replaces a `nop` of ten bytes, and no other.
#[test]
fn the_newest_kernel_calls_from_a_nop_of_ten_bytes() {
    if !require::version("sid", "sid") {
        return;
    }
    let cases = [
        "uprobe*nop*/empty",
        "uretprobe*nop*/empty",
        "usdt*nop*/empty",
        "uprobe-endbr64/empty",
    ];
    let record = counted(&cases, "sid");
    let mut sites = 0;
    for case in &record.cases {
        // Floors run between probes, and prove that each left the code as it was.
        assert_eq!(
            case.status,
            Status::Ok,
            "{}: {:?}",
            case.name,
            case.problems
        );
        let Some(attach) = case.factors.get("attach") else {
            continue;
        };
        let expected = match attach.as_str() {
            name if name.ends_with("nop10") => "site_lea+call",
            _ => "site_int3",
        };
        let names: Vec<&str> = case.secondary.keys().map(String::as_str).collect();
        assert_eq!(names, [expected], "{}", case.name);
        sites += 1;
    }
    assert_eq!(sites, 11);
}

/// Debian's newest kernel lets only a process's tracer write its code (CONFIG_PROC_MEM_FORCE_PTRACE).
#[test]
fn the_newest_kernel_has_probes_in_user_space() {
    if !require::version("sid", "sid") {
        return;
    }
    let probes = [
        "user-uprobe-push/empty",
        "user-uretprobe-push/empty",
        "user-uprobe-nop10/map",
        "user-usdt-nop10/empty",
    ];
    let record = counted(&[&probes[..], &["uprobe-nop10/empty"]].concat(), "sid");
    let counts = nets(&record);
    let kernel = counts["uprobe-nop10/empty"];
    for name in probes {
        let count = counts.get(name).copied().unwrap_or_default();
        assert!(count > 0.0 && count < kernel, "{name}: {count}, {kernel}");
    }
}

/// The error names lockdown, not a missing feature; all else is measured.
#[test]
fn a_kernel_in_lockdown_says_so() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let line = format!(
        "run attach --case kprobe/empty --case kprobe.multi-all/empty --case tracepoint/empty \
         --case raw_tp/empty --on exact:{kernel} --quick"
    );
    let said = says(&tool, &line, r#"{"kernel": "lockdown=confidentiality"}"#);
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = record(&tool);
    assert_eq!(nets(&record).keys().collect::<Vec<_>>(), [&"raw_tp/empty"]);
    for case in ["kprobe", "kprobe.multi-all", "tracepoint"] {
        let name = format!("{case}/empty");
        let found = record.cases.iter().find(|case| case.name == name);
        let reason = found.and_then(|case| case.reason.as_deref());
        assert!(
            reason.is_some_and(|words| words.contains("the kernel is in lockdown")),
            "{name}: {reason:?}"
        );
    }
}

#[test]
fn a_function_that_can_not_be_probed_is_told() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let tool = Tool::new();
    let probe = "builtin:event:kprobe:asm_exc_int3:null";
    let line = format!("overhead {probe} --on vm:{kernel} --quick --out x.json -- true");
    let output = visit::command(&tool, &line).output();
    let said = said(&output.expect("the binary runs"));
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&[
        "asm_exc_int3 cannot be probed",
        "attach to a function that calls it",
    ]);
    assert_nothing_left(&tool);
}
