//! `attaching` in guests: with kprobes and trampolines, which a host may lack; and what a kernel lacks is said. Other
//! mechanisms are tested on the host.

use bpfcost_record::{CaseRecord, Status};

use crate::{kept::record, require, tool::Tool, visit::says_of_epochs};

/// Sites: more than one link.
const SITES: &str = "2";

fn cases(kernel: &str, globs: &str) -> Vec<CaseRecord> {
    let tool = Tool::new();
    let line = format!("run attaching --set sites={SITES} {globs} --on vm:{kernel} --quick");
    let said = says_of_epochs(&tool, &line, 2);
    assert!(said.out.contains("Switching on and off"), "{said:?}");
    record(&tool).cases
}

/// That each of the mechanisms is measured, which is the proof that it attached at all sites, and none was left; but for those
/// that the kernel lacks.
#[track_caller]
fn all_but(lacking: &[&str], cases: &[CaseRecord]) {
    for case in cases {
        let name = &case.name;
        if lacking.contains(&case.factors["mechanism"].as_str()) {
            assert_eq!(case.status, Status::Unsupported, "{name}");
            let reason = case.reason.as_deref().unwrap_or_default();
            assert!(reason.contains("this kernel has no"), "{name}: {reason}");
            continue;
        }
        assert_eq!(case.status, Status::Ok, "{name}: {:?}", case.problems);
        for value in ["load_ns", "detach_ns", "idle_stop_us"] {
            assert!(case.secondary.contains_key(value), "{name}: no {value}");
        }
    }
}

#[test]
fn kprobes_and_trampolines_are_measured_but_for_the_newest() {
    if let Some(kernel) = require::kernel() {
        let cases = cases(kernel, "--case kprobe* --case fentry*");
        assert_eq!(cases.len(), 4);
        all_but(&["fentry.multi"], &cases);
    }
}

#[test]
fn the_newest_kernel_has_the_newest() {
    if require::version("sid", "sid") {
        let cases = cases("sid", "--case fentry.multi/*");
        assert_eq!(cases.len(), 1);
        all_but(&[], &cases);
    }
}
