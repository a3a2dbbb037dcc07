//! A user's object in a process: its sections say where its programs run.

#[path = "../require/mod.rs"]
mod require;

use std::{
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use bpfcost_bpf::{
    LIBBPF_HEADERS,
    attach::{ProcessCounts, ProcessObject},
};

const CALLS: u64 = 200;
/// Number of times that a process which executes its program anew all the time is attached to.
const EXECUTING: u32 = 25;
const TIMEOUT: Duration = Duration::from_millis(20);

/// Compiles a source of this folder into another. The sections name the target as it is said.
fn object(source: &str, target: &str, folder: &Path) -> PathBuf {
    let object = folder.join("object.bpf.o");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process_object");
    let define = format!("-DTARGET=\"{target}\"");
    let headers = Path::new(LIBBPF_HEADERS);
    bpfcost_compile::compile(&sources.join(source), &object, headers, &[&define])
        .expect("it compiles");
    object
}

/// Compiles a program of the tests of `crates/uprobe`.
fn compile(source: &str, folder: &Path) -> PathBuf {
    compile_as("target", source, &[], folder)
}

/// Compiles one as a file of this name, with these flags.
fn compile_as(name: &str, source: &str, flags: &[&str], folder: &Path) -> PathBuf {
    let binary = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../uprobe/tests/targets")
        .join(source);
    let mut compiler = Command::new("gcc");
    let status = compiler
        .args(["-O2", "-o"])
        .args([&binary, &source])
        .args(flags)
        .status();
    assert!(status.expect("gcc runs").success());
    binary
}

/// Starts such a program, up to its "ready".
fn start(source: &str, folder: &Path) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(compile(source, folder))
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
    let path = object(source, "target", folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let (mut child, mut output) = start("arguments.c", folder.path());
    object
        .attach(&[], || vec![child.id()])
        .expect("it attaches");
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

#[test]
fn programs_that_tail_calls_lead_to_need_no_place() {
    if require::host() {
        run("lines.bpf.c", 2);
    }
}

/// A server, as it were: a shell that runs what a test writes to it.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Self {
        let mut child = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Shell {
            child,
            input: input.expect("a pipe"),
            output: BufReader::new(output.expect("a pipe")),
        }
    }

    fn attach(&self, object: &mut ProcessObject) {
        let pid = self.child.id();
        object.attach(&[pid], || vec![pid]).expect("it attaches");
    }

    /// Runs commands while the object attaches to what they start, and `beside`.
    fn run(&mut self, commands: &str, object: &mut ProcessObject, beside: impl FnOnce()) {
        writeln!(self.input, "{commands} && echo done || echo failed").expect("it reads");
        thread::scope(|scope| {
            let heard = scope.spawn(|| line(&mut self.output));
            beside();
            while !heard.is_finished() {
                object.wait(TIMEOUT).expect("it waits");
            }
            assert_eq!(heard.join().expect("it prints"), "done");
        });
    }

    fn end(self) {
        let Shell {
            mut child, input, ..
        } = self;
        drop(input);
        assert!(child.wait().expect("it ends").success());
    }
}

#[test]
fn what_a_server_starts_later_is_attached_to() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let binary = compile("started.c", folder.path());
    let target = binary.to_str().expect("a path");
    let path = object("calls.bpf.c", target, folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let mut shell = Shell::start();
    // Of another process, the same is not counted.
    let other = || {
        let status = Command::new(&binary).arg("10").status();
        assert!(status.expect("it runs").success());
    };
    for window in 1..=2 {
        shell.attach(&mut object);
        shell.run(&format!("{target} 10 3 && {target} 20"), &mut object, other);
        let counts = object.detach().expect("it detaches");
        let all = ProcessCounts {
            hits: 10 + 3 * 10 + 20,
            missed: 0,
        };
        assert_eq!(counts, all, "window {window}");
        let taken = object.take().expect("a ring");
        assert_eq!((taken.records, taken.lost), (window * all.hits, 0));
        other();
    }
    assert_eq!(object.take().expect("a ring").records, 120);
    shell.end();
}

#[test]
fn a_process_may_execute_another_program_meanwhile() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    // By its path: there are moments in which it has no file mapped that a name could be compared with.
    let target = folder.path().join("target");
    let target = target.to_str().expect("a path");
    let path = object("calls.bpf.c", target, folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let (mut child, _output) = start("executes.c", folder.path());
    for _ in 0..EXECUTING {
        // Without starters, nothing stops it where its program begins.
        let pids = || vec![child.id()];
        object.attach(&[], pids).expect("it attaches, or not");
        object.detach().expect("it detaches");
    }
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn libraries_that_are_loaded_later_are_attached_to() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let binary = compile("loads.c", folder.path());
    let target = binary.to_str().expect("a path");
    let library = "target-library.so";
    compile_as(
        library,
        "started_library.c",
        &["-shared", "-fPIC"],
        folder.path(),
    );
    let path = object("loads.bpf.c", target, folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let mut shell = Shell::start();
    let command = format!("{target} {target}-library.so");
    shell.attach(&mut object);
    shell.run(&format!("{command} 30"), &mut object, || {});
    let all = ProcessCounts {
        hits: 30 + 31,
        missed: 0,
    };
    assert_eq!(object.detach().expect("it detaches"), all);
    // What a forked child loads is not probed: a missed call.
    shell.attach(&mut object);
    shell.run(&format!("{command} 30 fork"), &mut object, || {});
    let all = ProcessCounts {
        hits: 30 + 30,
        missed: 1,
    };
    assert_eq!(object.detach().expect("it detaches"), all);
    shell.end();
}

#[test]
fn a_path_that_leads_nowhere_is_an_error() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = object("calls.bpf.c", "/no/such/file", folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let error = object.attach(&[], Vec::new).expect_err("no file");
    let words = error.to_string();
    assert!(words.contains("on_work names /no/such/file"), "{words}");
    assert!(words.contains("Correct the path"), "{words}");
}

#[test]
fn children_are_attached_to_in_this_window_and_in_the_next() {
    if !require::host() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = object("calls.bpf.c", "target", folder.path());
    let mut object = ProcessObject::load(&path, None).expect("it loads");
    let (mut parent, mut output) = start("forked.c", folder.path());
    let mut input = parent.stdin.take().expect("a pipe");
    let mut order = |order: &str, answer: &str| {
        writeln!(input, "{order}").expect("it reads");
        assert_eq!(line(&mut output), answer);
    };
    let all = ProcessCounts { hits: 3, missed: 0 };
    object
        .attach(&[parent.id()], || vec![parent.id()])
        .expect("it attaches");
    order("fork", "forked");
    order("call", "called");
    assert_eq!(object.detach().expect("it detaches"), all);
    order("call", "called");
    for window in 2..=3 {
        let family = family(parent.id());
        assert_eq!(family.len(), 3);
        let list = || family.clone();
        object.attach(&family, list).expect("it attaches");
        order("call", "called");
        assert_eq!(
            object.detach().expect("it detaches"),
            all,
            "window {window}"
        );
        order("call", "called");
    }
    assert_eq!(object.take().expect("a ring").records, 9);
    drop(input);
    assert!(parent.wait().expect("it ends").success());
}

/// A process and what descends from it.
fn family(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("the kernel tells children");
    let pids = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"));
    [pid].into_iter().chain(pids.flat_map(family)).collect()
}
