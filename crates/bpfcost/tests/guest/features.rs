//! Features that kernels have and lack: exact lists of Debian's, so that a feature that stops being found on a
//! kernel that has it fails here.

use bpfcost_record::Record;

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

/// The features that the kernel of a record lacks, each with the reason.
fn missing(record: &Record) -> Vec<(&str, &str)> {
    let features = &record.machine.features;
    assert_eq!(features.len(), bpfcost_bpf::Feature::ALL.len());
    features
        .iter()
        .filter_map(|feature| Some((feature.name.as_str(), feature.missing.as_deref()?)))
        .collect()
}

fn sorted<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_unstable();
    names
}

#[track_caller]
fn assert_missing(found: &[(&str, &str)], expected: &[&str]) {
    let names = found.iter().map(|(name, _)| *name);
    assert_eq!(
        sorted(names),
        sorted(expected.iter().copied()),
        "{found:#?}"
    );
}

/// Linux 6.1 lacks what came later, and fprobe.
#[track_caller]
pub(crate) fn of_6_1(record: &Record) {
    let found = missing(record);
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
        let words = match name {
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

/// Linux 6.12 lacks only what came later.
#[track_caller]
pub(crate) fn of_6_12(record: &Record) {
    let found = missing(record);
    assert_missing(&found, &AFTER_6_12);
    for (_, why) in found {
        assert!(
            why.contains("; this is 6.12.") && !why.contains("without it"),
            "{why}"
        );
    }
}

/// The newest lacks nothing.
#[track_caller]
pub(crate) fn of_the_newest(record: &Record) {
    assert_missing(&missing(record), &[]);
}
