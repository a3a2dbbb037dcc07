//! The program that reads records where nothing is measured: one success of each command, and mistakes.

use std::{
    fs,
    process::{Command, Output},
};

use bpfcost_record::samples::record;

fn read(words: &[&str]) -> (i32, String, String) {
    let program = env!("CARGO_BIN_EXE_bpfcost-read");
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program).args(words).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("a code"), text(stdout), text(stderr))
}

#[test]
fn records_become_pages_and_comparisons() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let (records, page) = (path("run.json"), path("page.html"));
    bpfcost_record::write(&record(10), records.as_ref()).expect("a record");

    let (code, _, said) = read(&["report", &records, "-o", &page]);
    assert_eq!((code, said), (0, format!("wrote {page}\n")));
    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("<html") && page.trim_end().ends_with("</html>"));

    let (code, answer, said) = read(&["compare", &records, &records]);
    assert_eq!(code, 0, "{answer}{said}");
    assert!(
        answer.starts_with("The gate passed: of 2 cases"),
        "{answer}"
    );
}

#[test]
fn the_experiments_are_listed() {
    let (code, table, said) = read(&["list"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(
        table.contains("xdp-lb") && table.contains("question"),
        "{table}"
    );
    let (code, json, _) = read(&["list", "--format", "json"]);
    assert_eq!(code, 0);
    assert_eq!(json, include_str!("../experiments.json"));
}

#[test]
fn mistakes_have_the_exit_codes_of_bpfcost() {
    for (words, why) in [
        (&["measure"][..], "unrecognized subcommand"),
        (&["report", "nothing.json"], "there is no file or folder"),
        (&["compare", "nothing.json"], "required arguments"),
        (&["list", "xdp-lb"], "unexpected argument"),
    ] {
        let (code, answer, said) = read(words);
        assert_eq!((code, answer.as_str()), (2, ""), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let (code, help, _) = read(&["--help"]);
    assert_eq!(code, 0);
    assert!(
        help.contains("report") && help.contains("compare"),
        "{help}"
    );
}
