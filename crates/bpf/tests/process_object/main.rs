//! A user's object in a process: its sections say where its programs run.

#[path = "../require/mod.rs"]
mod require;

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use bpfcost_bpf::attach::{ProcessCounts, ProcessObject};
use libbpf_cargo::SkeletonBuilder;

const CALLS: u64 = 200;

/// Compiles a source of this folder into another.
fn object(source: &str, folder: &Path) -> PathBuf {
    let object = folder.join("object.bpf.o");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process_object");
    SkeletonBuilder::new()
        .source(sources.join(source))
        .obj(&object)
        .clang(std::env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang-19")))
        .clang_args(["-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu"])
        .build()
        .expect("it compiles");
    object
}

/// A program of the tests of `crates/uprobe`, up to its "ready".
fn start(source: &str, folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let (binary, targets) = (folder.join("target"), "../uprobe/tests/targets");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(targets)
        .join(source);
    let mut compiler = Command::new("gcc");
    let status = compiler
        .args(["-O2", "-o"])
        .args([&binary, &source])
        .status();
    assert!(status.expect("gcc runs").success());
    let mut child = Command::new(binary)
        .arg(CALLS.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert_eq!(line(&mut output), "ready");
    (child, output)
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("it prints");
    line.trim_end().to_owned()
}

/// Runs an object's programs over the calls of arguments.c, each of which leads to so many runs and as many records.
fn run(source: &str, runs: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut object = ProcessObject::load(&object(source, folder.path()), None).expect("it loads");
    let (mut child, mut output) = start("arguments.c", folder.path());
    object.attach(&[child.id()]).expect("it attaches");
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "go").expect("it reads");
    assert_eq!(line(&mut output), format!("{CALLS} 0"));
    let counts = object.detach().expect("it detaches");
    let all = ProcessCounts {
        hits: runs * CALLS,
        missed: 0,
    };
    assert_eq!(counts, all);
    assert_eq!(object.take().expect("a ring").records, runs * CALLS);
    drop(input);
    child.wait().expect("it ends");
}

#[test]
fn programs_at_usdt_sites_get_their_arguments() {
    if require::host() {
        run("usdt.bpf.c", 2);
    }
}

#[test]
fn several_programs_at_one_place_all_run() {
    if require::host() {
        run("several.bpf.c", 6);
    }
}
