//! Each function used as it is meant, and in ways that it is not: C programs check the answers.

use crate::{
    CALLS, THREADS, Tool, common, compile_bpf,
    installed::{compile, with_library},
    run, start,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    /// Compiles a C program, and an object for it.
    fn new(name: &str, bpf: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let built = Built { folder };
        compile(
            &format!("tests/library/{name}.c"),
            &built.path("tool"),
            flags,
        );
        compile_bpf(bpf, &built.path("object.o"));
        built
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, pid: i32) -> Command {
        let mut command = Command::new(self.path("tool"));
        command.arg(self.path("object.o")).arg(pid.to_string());
        with_library(&mut command);
        command
    }
}

#[test]
fn each_function_does_what_the_header_says() {
    if !common::require::host() {
        return;
    }
    let version = format!("-DVERSION=\"{}\"", env!("CARGO_PKG_VERSION"));
    let built = Built::new("use", "tests/library/kinds.bpf.c", &[&version]);
    let (_binary, mut process) = start();
    let mut command = built.command(process.pid());
    let mut tool = Tool::start(command.arg((THREADS * CALLS).to_string()));
    // The first for all maps, the second for lines.
    for calls in 1..=2 {
        tool.wait_for("attached");
        assert_eq!(process.go(), calls * THREADS * CALLS);
        tool.go_on();
    }
    tool.wait_for("attached");
    process.go();
    process.send("end");
    assert!(process.wait().success());
    tool.go_on();
    tool.end();
}

/// AddressSanitizer sees reads and writes of what is not there, and memory that is not freed.
#[test]
fn wrong_calls_are_errors() {
    if !common::require::host() {
        return;
    }
    let sanitizer = "-fsanitize=address,undefined";
    let library = run(Command::new("cc").arg("-print-file-name=libasan.so"));
    // One that is not there is named without a folder.
    if !Path::new(library.trim()).is_absolute() {
        return common::require::skip("cc has no AddressSanitizer");
    }
    let built = Built::new("wrong", "tests/library/kinds.bpf.c", &[sanitizer]);
    let (_binary, mut process) = start();
    let mut tool = Tool::start(&mut built.command(process.pid()));
    tool.wait_for("attached");
    assert_eq!(process.go(), THREADS * CALLS);
    tool.go_on();
    tool.end();
    // All was detached.
    common::until_restored(&process, "handle");
    assert_eq!(process.go(), 2 * THREADS * CALLS);
}

#[test]
fn nothing_is_left_behind_in_the_caller() {
    if !common::require::host() {
        return;
    }
    let built = Built::new("memory", "examples/calls.bpf.c", &[]);
    let (_binary, mut process) = start();
    let printed = Tool::start(&mut built.command(process.pid())).end();
    println!("{}", printed.join("\n"));
    assert_eq!(process.go(), THREADS * CALLS);
}
