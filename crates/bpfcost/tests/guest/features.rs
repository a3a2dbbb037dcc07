//! What kernels have and lack: exact lists of Debian's, so that a feature that stops being found on a
//! kernel that has it fails here.

use crate::{kept::record, require, tool::Tool, visit::says};

/// Came after Debian 12's kernel.
const AFTER_6_1: [&str; 9] = [
    "can_loop",
    "arena",
    "kprobe.session",
    "uprobes on a nop of 10 bytes",
    "uprobe.multi",
    "uprobe.session",
    "tcx",
    "netfilter",
    "bpf_modify_return_test_tp",
];

/// Came after Debian 13's.
const AFTER_6_12: [&str; 6] = [
    "uprobes on a nop of 10 bytes",
    "uprobe.session",
    "fsession",
    "fentry.multi",
    "fexit.multi",
    "fsession.multi",
];

/// The features that the kernel of a guest lacks, each with the reason. In passing: the ladder has what it
/// needs on each of them.
#[track_caller]
fn missing_on(kernel: &str) -> Vec<(String, String)> {
    let tool = Tool::new();
    let line =
        format!("run ladder --quick --seed 7 --case added-0 --case added-1 --on exact:{kernel}");
    let said = says(&tool, &line, "{}");
    assert_eq!(said.code, Some(0), "{said:?}");
    let record = record(&tool);
    let features = record.machine.features;
    assert_eq!(features.len(), bpfcost_bpf::Feature::ALL.len());
    features
        .into_iter()
        .filter_map(|feature| Some((feature.name, feature.missing?)))
        .collect()
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[track_caller]
fn assert_missing(found: &[(String, String)], expected: &[&str]) {
    let names = found.iter().map(|(name, _)| name.as_str());
    assert_eq!(
        sorted(names),
        sorted(expected.iter().copied()),
        "{found:#?}"
    );
}

#[test]
fn linux_6_1_lacks_what_came_later_and_fprobe() {
    if !require::version("6.1", "bookworm") {
        return;
    }
    let found = missing_on("6.1");
    let others = [
        "kprobe.multi",
        "fsession",
        "fentry.multi",
        "fexit.multi",
        "fsession.multi",
    ];
    assert_missing(&found, &[&AFTER_6_1[..], &others].concat());
    for (name, why) in found {
        // It is young enough for that one, and was built without.
        let words = match name.as_str() {
            "kprobe.multi" => "needs Linux 5.18 with CONFIG_FPROBE; this is 6.1.",
            _ => "needs Linux",
        };
        assert!(why.contains(words), "{why}");
        assert_eq!(
            why.ends_with("without it)"),
            name == "kprobe.multi",
            "{why}"
        );
    }
}

#[test]
fn linux_6_12_lacks_only_what_came_later() {
    if !require::version("6.12", "trixie") {
        return;
    }
    let found = missing_on("6.12");
    assert_missing(&found, &AFTER_6_12);
    for (_, why) in found {
        assert!(
            why.contains("; this is 6.12.") && !why.contains("without it"),
            "{why}"
        );
    }
}

#[test]
fn the_newest_lacks_nothing() {
    if require::version("sid", "sid") {
        assert_missing(&missing_on("sid"), &[]);
    }
}
