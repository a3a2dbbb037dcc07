//! Changes that runs of a program make in its maps.

use std::collections::BTreeMap;

use bpfcost_bpf::program::{Body, Drift, MapChanges, Restore};

use crate::{
    lab::{object, prepare},
    require,
};

/// Changes that a program makes from its 4th run on, or from a later one.
fn changes(program: &str, runs_before: u64) -> MapChanges {
    let prepared = prepare(&object("xdp.bpf.c"), program);
    let run = |ops| drop(prepared.batch(ops, Body::Program, Restore::None));
    let state = || prepared.native.map_state();
    if runs_before > 0 {
        run(runs_before);
    }
    let first = state();
    run(16);
    let second = state();
    run(33);
    MapChanges::between([&first, &second, &state()], [16, 33], &prepared.oracle.grew)
}

fn per_run(changes: &MapChanges) -> BTreeMap<&str, Option<i64>> {
    let all = changes.per_run.iter();
    all.map(|(place, amount)| (place.as_str(), *amount))
        .collect()
}

/// Counters in each CPU's value, and variables too; 114 is the length of the packet.
#[test]
fn counters_grow_by_the_same_in_each_run() {
    if !require::host() {
        return;
    }
    let changes = changes("accounts", 0);
    let wanted = [
        ("traffic[1]", Some(1)),
        ("traffic[1]@8", Some(114)),
        ("last_time", None),
    ];
    assert_eq!(per_run(&changes), BTreeMap::from(wanted));
    assert!(changes.drifts.is_empty(), "{changes:?}");
    assert!(changes.unread.is_empty(), "{changes:?}");
}

#[test]
fn tables_that_drift_are_seen() {
    if !require::host() {
        return;
    }
    let grows = changes("grows", 0);
    // Three runs alone, one to see what it changes, and 49.
    let (entries, room) = (53, 4096);
    assert_eq!(
        grows.drifts.get("seen"),
        Some(&Drift::Grows { entries, room })
    );
    let wanted = [("runs[0]", Some(1)), ("seen", Some(1))];
    assert_eq!(per_run(&grows), BTreeMap::from(wanted));
    let fills = changes("fills", 0);
    assert_eq!(fills.drifts.get("few"), Some(&Drift::Full { room: 2 }));
    let replaces = changes("replaces", 20_000);
    assert!(replaces.drifts.contains_key("recent"), "{replaces:?}");
    // Finds its key there in each run but the first.
    let steady = changes("count", 0);
    assert!(steady.drifts.is_empty(), "{steady:?}");
    assert_eq!(
        per_run(&steady),
        BTreeMap::from([("packets_by_length[114]", Some(1))])
    );
}

/// A table with more entries than are counted is said to be unknown, not steady.
#[test]
fn tables_that_are_too_large_are_named() {
    if !require::host() {
        return;
    }
    let large = changes("grows_large", 70_000);
    assert!(large.unread.contains("many"), "{:?}", large.unread);
    assert!(!large.drifts.contains_key("many"));
}
