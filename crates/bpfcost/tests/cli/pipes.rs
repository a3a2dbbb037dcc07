//! Readers that go away, and files that are full: neither makes it panic.

use crate::{finished::unwritten, require, tool::Tool};

#[test]
fn a_reader_that_goes_away_is_no_mistake() {
    let tool = Tool::new();
    for command in [
        "list",
        "list xdp-lb",
        "check",
        "--help",
        "run xdp-lb --dry-run",
    ] {
        // The left side's exit code goes to stderr, since the pipe's is that of `true`.
        let said = tool.shell(&format!(
            "{{ sleep 0.1; $BPFCOST {command}; echo \"code $?\" >&2; }} | true"
        ));
        assert!(!said.err.contains("panicked"), "{command}: {said:?}");
        assert!(
            said.err.contains("code 0") || command == "check",
            "{command}: {said:?}"
        );
    }
}

#[test]
fn the_record_is_kept_where_nobody_reads_the_table() {
    if !require::host() {
        return;
    }
    let tool = unwritten();
    let said = tool.shell("$BPFCOST run --resume x.json | head -1");
    assert_eq!(said.out.lines().count(), 1, "{said:?}");
    assert!(!said.err.contains("panicked"), "{said:?}");
    assert_eq!(tool.names(), ["x.json"]);
}

#[test]
fn the_record_is_kept_where_the_table_cannot_be() {
    if !require::host() {
        return;
    }
    let tool = unwritten();
    let said = tool.shell("$BPFCOST run --resume x.json >/dev/full");
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["standard output"]);
    assert_eq!(tool.names(), ["x.json"]);
}

#[test]
fn a_full_standard_output_is_told() {
    let tool = Tool::new();
    let said = tool.shell("$BPFCOST list >/dev/full");
    assert_eq!(said.code, Some(4), "{said:?}");
    said.complains(&["cannot write to standard output", "No space left"]);
    let said = tool.shell("$BPFCOST run nothing 2>/dev/full");
    assert_eq!(said.code, Some(2), "{said:?}");
}
