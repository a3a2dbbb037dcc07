//! SIGKILL at any moment: nothing is left in the kernel, and the journal makes a whole record.

use std::{fs, process::Stdio, thread, time::Duration};

use crate::{
    journals::{assert_holds, record, trials},
    require,
    running::Running,
    sample_record,
    tool::{QUICK, Tool},
};

/// Kills a run once its journal is as wanted and, if `loaded`, something of it is in the kernel; then
/// continues it to its end. `false` where the run was over before it was caught.
#[track_caller]
fn killed(wanted: impl Fn(&str) -> bool, loaded: bool) -> bool {
    if !require::host() {
        return true;
    }
    let tool = Tool::new();
    let mut run = Running::start(&tool, QUICK);
    if !run.until_or_end(wanted) {
        let kept = fs::read_to_string(tool.path("x.json")).expect("the record");
        assert_eq!(record(&kept)["stop"], "rounds");
        return false;
    }
    let held = if loaded {
        run.until_it_holds()
    } else {
        run.held()
    };
    run.kill();
    let journal = run.journal();
    held.assert_freed();
    println!("killed with {held:?}");

    let known = ["x.json", "x.json.journal"];
    let others: Vec<String> = tool
        .names()
        .into_iter()
        .filter(|name| !known.contains(&name.as_str()))
        .collect();
    assert!(
        others
            .iter()
            .all(|name| !name.ends_with(".json") && !name.ends_with(".journal")),
        "{others:?} would be taken for a record"
    );
    if let Ok(text) = fs::read_to_string(tool.path("x.json")) {
        assert_holds(&record(&text), &trials(&journal));
    }
    if tool.path("x.json.journal").exists() {
        let resumed = record(&tool.answers("run --resume x.json --format json"));
        assert_holds(&resumed, &trials(&journal));
        assert_eq!(resumed["stop"], "rounds");
    }
    let kept = fs::read_to_string(tool.path("x.json")).expect("the record");
    assert_eq!(record(&kept)["stop"], "rounds");
    assert!(!tool.path("x.json.journal").exists());
    tool.answers("compare x.json x.json");
    true
}

#[test]
fn in_setting_up() {
    assert!(killed(|journal| journal.ends_with('\n'), true));
}

#[test]
fn in_calibration() {
    assert!(killed(
        |journal| journal.contains("\n{\"calibrated\""),
        true
    ));
}

#[test]
fn in_a_trial() {
    assert!(killed(|journal| trials(journal).len() >= 9, true));
}

#[test]
fn in_writing_the_record() {
    // The moment is short, and a busy machine may let it pass unseen: several tries, of which each
    // must leave a whole record, caught or not.
    let caught = (0..5).any(|_| killed(|journal| journal.contains("\n{\"stopped\""), false));
    println!("caught: {caught}");
}

#[test]
fn in_reporting() {
    let tool = Tool::new();
    let record = serde_json::to_string(&sample_record::sized(400, 3)).expect("JSON");
    tool.write("old.json", record);
    tool.answers("report old.json -o page.html");
    let page = fs::read(tool.path("page.html")).expect("a page");
    for wait_ms in [0, 2, 4, 8, 16, 32, 64, 128] {
        let mut report = tool
            .command("report old.json -o page.html")
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        thread::sleep(Duration::from_millis(wait_ms));
        // One that has ended already can't be killed, and has nothing to lose.
        let _ = report.kill();
        report.wait().expect("it ends");
        let now = fs::read(tool.path("page.html")).expect("a page");
        assert!(now == page, "half a page after {wait_ms} ms");
    }
}
