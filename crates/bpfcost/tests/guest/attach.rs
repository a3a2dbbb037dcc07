//! Ways to attach, counted in exact guests: all that a kernel has, the same in two boots.

use std::collections::BTreeMap;

use bpfcost::record::{Record, Status};

use crate::{kept::record, require, tool::Tool, visit::says};

/// What copies the packet: which way the copy takes goes by the low bits of its address, and those by the
/// boot.
const COPIES: [&str; 2] = ["xdp-generic/empty", "xdp-native-veth-skb/empty"];

fn counted(cases: &[&str], kernel: &str) -> Record {
    let tool = Tool::new();
    let globs: String = cases.iter().map(|glob| format!(" --case {glob}")).collect();
    let line = format!("run attach{globs} --on exact:{kernel} --quick");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    record(&tool)
}

/// Instructions an event, by case.
fn nets(record: &Record) -> BTreeMap<&str, f64> {
    let net = |case: &bpfcost::record::CaseRecord| case.net.as_ref()?.value;
    let cases = record.cases.iter().filter(|case| case.status == Status::Ok);
    cases
        .filter_map(|case| Some((case.name.as_str(), net(case)?)))
        .collect()
}

#[test]
fn two_boots_agree_on_every_way() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let cases = [
        "*/empty",
        "fentry/map",
        "fentry/hash",
        "fentry/ringbuf*",
        "kprobe/empty/stats",
        "raw_tp/*",
    ];
    let [one, other] = [counted(&cases, kernel), counted(&cases, kernel)];
    let (one, other) = (nets(&one), nets(&other));
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        other.keys().collect::<Vec<_>>()
    );
    let empty = one.keys().filter(|name| name.ends_with("/empty")).count();
    assert!(empty >= 35, "{empty} ways: {one:?}");
    for (name, first) in &one {
        let apart = (first - other[name]).abs();
        let allowed = match name {
            name if COPIES.contains(name) || name.ends_with("/stack") => 0.01 * first,
            name if name.ends_with("/empty") => 0.0,
            _ => 0.001 * first,
        };
        // A count that is no whole number is known to the clock's rounding.
        assert!(
            apart <= allowed + 0.05,
            "{name}: {first} in one boot, {} in the other",
            other[name]
        );
    }
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
