//! Resources that the kernel holds for programs like ours, for tests that nothing is left behind.

use std::{collections::BTreeSet, fs, time::Duration};

use bpfcost_bpf::{loaded_maps, loaded_programs};
use bpfcost_process::wait_until;

/// Waits until the kernel has freed what went before, which it does behind the caller's back.
pub(crate) fn settled(as_it_should_be: impl Fn() -> bool) {
    wait_until(
        Duration::from_secs(60),
        Duration::from_millis(50),
        as_it_should_be,
    );
}

/// Resources that the kernel holds for programs like ours, a line each.
pub(crate) fn held() -> BTreeSet<String> {
    let programs = loaded_programs().into_iter();
    let programs = programs.map(|one| format!("program {} {} {}", one.id, one.kind, one.name));
    let namespace = fs::read_link("/proc/thread-self/ns/net").expect("a namespace");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    programs
        .chain(loaded_maps().iter().map(|id| format!("map {id}")))
        .chain([format!("in {}", namespace.display())])
        .chain(mounts.lines().map(|line| format!("mount {line}")))
        .chain(descriptors())
        .collect()
}

/// Those of this process that hold something of the kernel's: network namespaces, which have no other list, and what belongs
/// to BPF and perf.
fn descriptors() -> Vec<String> {
    let held = |kind: &str| {
        let anonymous = kind.strip_prefix("anon_inode:");
        kind.starts_with("net:")
            || anonymous.is_some_and(|one| ["bpf", "btf", "perf"].iter().any(|of| one.contains(of)))
    };
    let all = fs::read_dir("/proc/self/fd").expect("descriptors");
    // The one that lists them is gone when it is asked about.
    let all = all.flatten().filter_map(|one| {
        let kind = fs::read_link(one.path()).ok()?.display().to_string();
        held(&kind).then(|| format!("descriptor {} {kind}", one.file_name().display()))
    });
    all.collect()
}
