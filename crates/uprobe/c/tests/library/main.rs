//! The C library as its users have it: installed, found by pkg-config, called from C and Go.

#[path = "../../../tests/common/mod.rs"]
mod common;

mod examples;
mod installed;
mod misuse;
mod names;

use common::{Binary, Target};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Calls that each thread of the target makes at an order, and the threads.
const CALLS: u64 = 1000;
const THREADS: u64 = 2;

/// Compiles BPF C of this package.
fn compile_bpf(source: &str, object: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let headers = Path::new(bpfcost_uprobe::LIBBPF_HEADERS.expect("a build of the repository"));
    bpfcost_compile::compile(&source, object, headers, &["-mcpu=v3"])
        .unwrap_or_else(|error| panic!("{error}"));
}

/// The target, which has made no calls yet.
fn start() -> (Binary, Target) {
    let sites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets");
    let binary = Binary::compile("calls.c", &["-I", sites.to_str().expect("text")]);
    let process = binary.start(&[&THREADS.to_string(), &CALLS.to_string()]);
    (binary, process)
}

/// A program of C or Go at work.
struct Tool {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Tool {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        Tool {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        }
    }

    /// Waits for a line.
    fn wait_for(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        assert_eq!(line.trim_end(), expected, "{:?}", self.child.try_wait());
    }

    /// Has it go on.
    fn go_on(&mut self) {
        let input = self.input.as_mut().expect("a pipe");
        input.write_all(b"go\n").expect("it reads");
    }

    /// The other lines that it prints. It ends well.
    fn end(mut self) -> Vec<String> {
        let lines = self.output.lines().map(|line| line.expect("text"));
        let lines = lines.collect();
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status}");
        lines
    }
}

/// Runs a command, which has to end well. Returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{command:?}: {errors}{printed}");
    printed
}

fn text(path: &Path) -> String {
    let text = fs::read_to_string(path);
    text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
