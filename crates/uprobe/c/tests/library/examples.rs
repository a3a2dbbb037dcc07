//! The examples, in C and Go: every call is counted and shown, and the process is restored, also after a kill.

use crate::{
    CALLS, THREADS, Tool,
    common::{Target, require, until_restored, wait_until},
    compile_bpf,
    installed::{compile, root, with_library},
    run, start,
};
use bpfcost_uprobe::process::{Image, Memory};
use std::{path::Path, process::Command};

fn counting(program: &Path, process: &Target) -> Command {
    let object = program.with_file_name("calls.bpf.o");
    compile_bpf("examples/calls.bpf.c", &object);
    let mut command = Command::new(program);
    command.arg(object).arg(process.pid().to_string());
    with_library(command.arg("handle"));
    command
}

/// The program counts the calls of two rounds, between its start and Ctrl-C.
fn counts_all(program: &Path) {
    let (_binary, mut process) = start();
    let mut tool = Tool::start(&mut counting(program, &process));
    tool.wait_for("attached");
    process.go();
    assert_eq!(process.go(), 2 * THREADS * CALLS);
    let interrupt = format!("kill -INT {}", tool.child.id());
    run(Command::new("sh").args(["-c", &interrupt]));
    let lines = tool.end();

    let (last, before) = lines.split_last().expect("a result");
    let words: Vec<&str> = last.split(' ').collect();
    let [hits, "hits,", missed, "missed,", lost, "records", "lost"] = words[..] else {
        panic!("{last}");
    };
    let [hits, missed, lost] = [hits, missed, lost].map(|word| word.parse::<u64>().unwrap());
    assert_eq!(hits + missed, 2 * THREADS * CALLS);
    let records = before.iter().filter(|line| line.starts_with("process "));
    let is_right = |line: &&String| {
        let (_, arguments) = line.split_once(": ").expect("arguments");
        let (first, second) = arguments.split_once(' ').expect("two of them");
        let first = u64::from_str_radix(first.trim_start_matches("0x"), 16);
        first.is_ok_and(|first| first < CALLS) && second == "0x5"
    };
    assert_eq!(
        records.clone().filter(is_right).count(),
        records.clone().count()
    );
    assert_eq!(records.count() as u64 + lost, hits);
    assert!(hits > missed && hits > lost, "{last}");
    let threads = before
        .iter()
        .filter_map(|line| line.strip_prefix("thread "));
    let calls = threads.map(|line| {
        let (_, calls) = line.split_once(": ").expect("calls");
        let calls = calls.strip_suffix(" calls").expect("calls");
        calls.parse::<u64>().expect("a number")
    });
    assert_eq!(calls.sum::<u64>(), hits);
    until_restored(&process, "handle");
    assert_eq!(process.go(), 3 * THREADS * CALLS);
}

/// A kill of the program leaves the process as it was.
fn killed_leaves_nothing(program: &Path) {
    let (_binary, mut process) = start();
    let function = Image::of_program(process.pid()).unwrap();
    let function = function.function("handle").unwrap();
    let memory = Memory::open(process.pid()).unwrap();
    let mut tool = Tool::start(&mut counting(program, &process));
    tool.wait_for("attached");
    assert!(function.check(&memory).is_err(), "nothing is attached");
    process.go();
    tool.child.kill().unwrap();
    tool.child.wait().unwrap();
    wait_until(|| function.check(&memory).is_ok());
    assert_eq!(process.go(), 2 * THREADS * CALLS);
}

#[test]
fn c() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("count");
    compile("examples/count.c", &program, &[]);
    counts_all(&program);
    killed_leaves_nothing(&program);
}

/// A command of Go in the package's folder; `None` where the test is skipped.
fn go_command(arguments: &[&str]) -> Option<Command> {
    if !require::host() {
        return None;
    }
    if Command::new("go").arg("version").output().is_err() {
        require::skip("go is not installed");
        return None;
    }
    let mut command = Command::new("go");
    command.args(arguments).env("GOPROXY", "off");
    with_library(command.current_dir(root().join("crates/uprobe/go")));
    Some(command)
}

#[test]
fn go() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("count");
    let Some(mut build) = go_command(&["build", "-o"]) else {
        return;
    };
    run(build.arg(&program).arg("./examples/count"));
    counts_all(&program);
    killed_leaves_nothing(&program);
}

/// The tests of the Go package, and `go vet`.
#[test]
fn go_package() {
    let Some(mut test) = go_command(&["test", "-count=1", "."]) else {
        return;
    };
    let (binary, _) = start();
    let object = binary.path().with_file_name("kinds.bpf.o");
    compile_bpf("tests/library/kinds.bpf.c", &object);
    test.env("BPFCOST_UPROBE_OBJECT", &object);
    run(test.env("BPFCOST_UPROBE_TARGET", binary.path()));
    run(&mut go_command(&["vet", "./..."]).expect("go is there"));
}
