//! Ctrl-C and SIGTERM: what there is is shown and kept, and can be continued.

use std::fs;

use crate::{
    journals::{assert_holds, epochs, record, trials},
    require,
    running::Running,
    tool::{QUICK, Said, Tool},
};

/// A run that gets these signals once its journal is as wanted.
fn interrupted(tool: &Tool, signals: &[&str], wanted: impl Fn(&str) -> bool) -> Said {
    let mut run = Running::start(tool, QUICK);
    run.until(wanted);
    let held = run.held();
    for signal in signals {
        run.signal(signal);
    }
    let said = run.end();
    held.assert_freed();
    assert_eq!(said.code, Some(130), "{said:?}");
    said
}

#[test]
fn what_was_measured_is_shown_kept_and_continued() {
    if !require::host() {
        return;
    }
    for signal in ["INT", "TERM"] {
        let tool = Tool::new();
        let said = interrupted(&tool, &[signal], |journal| {
            journal.matches("\n{\"epoch-finished\"").count() >= 2
        });
        assert!(said.out.contains("pass-non-ip"), "{said:?}");
        assert!(
            said.err.contains("continue: bpfcost run --resume x.json"),
            "{said:?}"
        );
        assert_eq!(tool.names(), ["x.json", "x.json.journal"]);
        let partial = record(&fs::read_to_string(tool.path("x.json")).expect("the record"));
        assert_eq!(partial["stop"], "interrupted");
        let journal = fs::read_to_string(tool.path("x.json.journal")).expect("the journal");
        assert_holds(&partial, &trials(&journal));
        if signal == "TERM" {
            continue;
        }
        let whole = record(&tool.answers("run --resume x.json --format json"));
        assert_holds(&whole, &trials(&journal));
        assert_eq!(whole["stop"], "rounds");
        assert!(epochs(&whole) > epochs(&partial));
        assert_eq!(tool.names(), ["x.json"]);
    }
}

#[test]
fn before_the_first_epoch() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let said = interrupted(&tool, &["INT"], |journal| journal.ends_with('\n'));
    assert!(!said.out.is_empty(), "{said:?}");
    let partial = record(&fs::read_to_string(tool.path("x.json")).expect("the record"));
    assert_eq!(partial["stop"], "interrupted");
    tool.answers("report x.json -o page.html");
}

#[test]
fn twice() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    // At once they are one request, on a busy machine perhaps two: how it goes on is printed either way.
    let said = interrupted(&tool, &["INT", "INT"], |journal| {
        !trials(journal).is_empty()
    });
    assert!(said.err.contains("bpfcost run --resume x.json"), "{said:?}");
    assert!(tool.path("x.json.journal").exists());
}

#[test]
fn a_journal_has_one_writer() {
    if !require::host() {
        return;
    }
    let tool = Tool::new();
    let mut run = Running::start(&tool, QUICK);
    run.until(|journal| journal.ends_with('\n'));
    let second = format!("{QUICK} --out x.json");
    tool.refuses(
        &second,
        2,
        &["another bpfcost is writing x.json.journal right now"],
    );
    tool.refuses("run --resume x.json", 2, &["another bpfcost is writing"]);
    run.kill();
    tool.refuses(
        &second,
        2,
        &["holds an unfinished run", "--resume x.json.journal"],
    );
}
