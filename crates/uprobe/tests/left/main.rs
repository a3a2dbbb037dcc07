//! Memory that tools leave in a process: after many of them it is no more than after the first one.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod waiting;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{At, Attached, Place, Probes},
    process::{Function, Image, Memory, mappings},
};
use common::{Binary, Target, wait_until};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

/// Number of tools, and how many of them run in this process for each one that is killed.
const TOOLS: usize = 25;
const MANY: usize = 100;
const FOR_EACH_KILLED: usize = 10;
/// Bytes that tools may add: parts of pages that are in use already, and what the kernel counts late.
const SLACK: u64 = 2 << 20;
/// The process that a tool attaches to, its function, and the object.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
const FUNCTION: &str = "BPFCOST_UPROBE_FUNCTION";
const OBJECT: &str = "BPFCOST_UPROBE_OBJECT";

/// Memory of a process: number of mappings, bytes of addresses, bytes that are there.
#[derive(Debug, Clone, Copy)]
struct Size {
    mappings: usize,
    addresses: u64,
    resident: u64,
}

impl Size {
    fn from_process(pid: i32) -> Self {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        let pages: Vec<u64> = statm
            .split_ascii_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        Size {
            mappings: mappings(pid).unwrap().len(),
            addresses: pages[0] << 12,
            resident: pages[1] << 12,
        }
    }

    fn is_within(self, first: Size) -> bool {
        self.mappings <= first.mappings
            && self.addresses <= first.addresses
            && self.resident <= first.resident + SLACK
    }
}

fn function(pid: i32, name: &str) -> Function {
    Image::of_program(pid).unwrap().function(name).unwrap()
}

/// Attaches a new tool.
fn attach(pid: i32, name: &str, object: &[u8]) -> (Probes, Attached) {
    let object = LoadedObject::from_bytes("left", object, &Choice::default()).unwrap();
    let mut probes = Probes::new(object).unwrap();
    let function = function(pid, name);
    let place = |program, at| Place {
        program,
        function: &function,
        at,
        cookie: 0,
    };
    let places = [place("on_call", At::Entry), place("on_return", At::Return)];
    let attached = probes.attach(pid, &places).unwrap();
    wait_until(|| {
        let hits = probes.hits(&attached);
        hits.entry.hits > 100 && hits.returns.hits > 100
    });
    (probes, attached)
}

/// A tool that attaches, sees calls, and ends.
fn run(pid: i32, name: &str, object: &[u8]) {
    let (mut probes, attached) = attach(pid, name, object);
    probes.detach(attached).unwrap();
}

/// A tool that is killed behind `between` while it is attached.
fn kill(pid: i32, name: &str, object: &Path, between: impl FnOnce()) {
    let mut tool = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attach_and_wait", "--ignored", "--nocapture"])
        .env(TARGET, pid.to_string())
        .env(FUNCTION, name)
        .env(OBJECT, object)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(tool.stdout.take().unwrap()).lines();
    let mut lines = output.map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("attached")));
    between();
    tool.kill().unwrap();
    tool.wait().unwrap();
    let memory = Memory::open(pid).unwrap();
    let function = function(pid, name);
    wait_until(|| function.check(&memory).is_ok());
}

#[test]
#[ignore = "is the tool that another test kills"]
fn attach_and_wait() {
    let variable = |name| std::env::var(name).unwrap();
    let object = fs::read(variable(OBJECT)).unwrap();
    let pid = variable(TARGET).parse().unwrap();
    let _attached = attach(pid, &variable(FUNCTION), &object);
    println!("attached");
    wait_until(|| false);
}

/// Has many tools come and go, some of which are killed. `begin` makes the process call the function all the time.
fn come_and_go(tools: usize, mut process: Target, begin: &str, name: &str) {
    if !begin.is_empty() {
        process.send(begin);
        process.line();
    }
    let pid = process.pid();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("left.bpf.o");
    let object = compile::bpf("tests/left/left.bpf.c");
    fs::write(&file, &object).unwrap();
    run(pid, name, &object);
    let first = Size::from_process(pid);
    for tool in 1..tools {
        if tool % FOR_EACH_KILLED == 0 {
            kill(pid, name, &file, || ());
        } else {
            run(pid, name, &object);
        }
    }
    // What threads were in when the last tool ended is unmapped by the next one.
    let mut last = Size::from_process(pid);
    wait_until(|| {
        if !last.is_within(first) {
            run(pid, name, &object);
            last = Size::from_process(pid);
        }
        last.is_within(first)
    });
    println!("{first:?}, after {tools} tools {last:?}");
    process.send("stop");
    let line = process.line();
    assert_eq!(line.split(' ').nth(1), Some("0"), "{line}");
}

/// A process whose threads call `work` all the time, and get signals.
fn busy() -> Target {
    Binary::compile("busy.c", &[]).start(&["4", "t"])
}

/// One with a function that leaves by a jump to another.
fn tails() -> Target {
    Binary::compile("tails.c", &["-ldl"]).start(&[])
}

#[test]
fn tools_leave_no_more_than_the_first() {
    come_and_go(TOOLS, busy(), "", "work");
}

#[test]
fn tables_of_return_addresses_are_used_again() {
    come_and_go(TOOLS, tails(), "busy 4", "leaves");
}

#[test]
#[ignore = "the same for longer: make endurance"]
fn many_tools_leave_no_more_than_the_first() {
    come_and_go(MANY, busy(), "", "work");
    come_and_go(MANY, tails(), "busy 4", "leaves");
}

#[test]
fn a_process_that_may_open_no_more_files_is_attached_to() {
    let mut process = Binary::compile("busy.c", &[]).start(&["2"]);
    let pid = process.pid();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let full = Rlimit {
        current: Some(open),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    prlimit(Pid::from_raw(pid), Resource::Nofile, full).unwrap();
    let limits = || fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let before = limits();
    run(pid, "work", &compile::bpf("tests/left/left.bpf.c"));
    assert_eq!(limits(), before);
    assert_eq!(process.stop().1, 0);
}
