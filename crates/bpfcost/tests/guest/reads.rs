//! Reads of user-space probes by the copy in the vDSO. Debian's kernels end its faults; that of this machine may not.

use std::path::Path;

use crate::{inside::Results, require};

/// A bad pointer is an error, whatever signals are blocked, in children and under seccomp too, and the vDSO is as
/// before when the tool is gone: the example checks each.
#[test]
fn reads_of_bad_pointers_are_ended_by_the_kernel() {
    let Some(kernel) = require::kernel() else {
        return;
    };
    let folder = Path::new(env!("CARGO_BIN_EXE_bpfcost")).with_file_name("examples");
    let example = folder.join("reads");
    if !example.exists() {
        let build = "cargo build -p bpfcost-uprobe --example reads";
        return require::skip(format!("there is no {}; {build}", example.display()));
    }
    let script = format!("BPFCOST='{}' says reads vdso\n", example.display());
    let results = Results::measure(kernel, &script);
    let lines = results.answer("reads");
    assert!(lines.starts_with("the copy in the vDSO reads"), "{lines}");
    let under_seccomp = lines.split("under a seccomp filter:\n").nth(1);
    let strings = |line: &str| line.contains("strings: 1022 read, 135 errors");
    assert!(
        under_seccomp.is_some_and(|lines| lines.lines().any(strings)),
        "{lines}"
    );
}
