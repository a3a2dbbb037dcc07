//! Memory that programs read in a process, wherever it is: right bytes or zeros, and the process's own faults stay its
//! own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{Attached, Probes},
    process::Runtime,
};
use common::{Binary, Target, attach_at_entry, handled, vdso, wait_until};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

/// The process that the tool attaches to.
const TARGET: &str = "BPFCOST_UPROBE_TARGET";
/// Numbers of calls for "good" and for "bad".
const GOOD: u64 = 1000;
const BAD: u64 = 1008;

/// A process whose calls are probed.
struct Probed {
    process: Target,
    probes: Probes,
    attached: Option<Attached>,
    _binary: Binary,
}

/// Numbers of reads that succeeded, failed, and gave something wrong.
#[derive(Debug, PartialEq, Eq)]
struct Reads {
    read: u64,
    unread: u64,
    wrong: u64,
}

fn attach(pid: i32, program: &str, name: &str) -> (Probes, Attached) {
    let object = compile::bpf("tests/reads/reads.bpf.c");
    let object = LoadedObject::from_bytes("reads", &object, &Choice::default()).unwrap();
    let mut probes = Probes::new(object).unwrap();
    let attached = attach_at_entry(&mut probes, pid, program, name).unwrap();
    (probes, attached)
}

impl Probed {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let binary = Binary::compile("reads.c", &[]);
        let process = binary.start(arguments);
        let (probes, attached) = attach(process.pid(), program, "handle");
        Probed {
            process,
            probes,
            attached: Some(attached),
            _binary: binary,
        }
    }

    fn ask(&mut self, command: &str) -> i32 {
        ask(&mut self.process, command)
    }

    fn reads(&self) -> Reads {
        reads_of(&self.probes)
    }

    fn detach(&mut self) {
        let attached = self.attached.take().expect("it is attached");
        let hits = self.probes.detach(attached).unwrap().entry;
        assert_eq!(hits.missed, 0);
        let Reads {
            read,
            unread,
            wrong,
        } = self.reads();
        assert_eq!(read + unread + wrong, hits.hits);
        assert_eq!(wrong, 0);
    }
}

fn reads_of(probes: &Probes) -> Reads {
    let values = probes.map(".bss").unwrap().get(&[0; 4]);
    let values = values.unwrap().unwrap();
    let word = |index: usize| u64::from_ne_bytes(values[8 * index..][..8].try_into().unwrap());
    Reads {
        read: word(0),
        unread: word(1),
        wrong: word(2),
    }
}

fn ask(process: &mut Target, command: &str) -> i32 {
    process.send(command);
    let line = process.line();
    line.parse()
        .unwrap_or_else(|_| panic!("{command}: it died: {line:?}"))
}

#[test]
fn the_heap_is_read_and_what_is_not_there_is_not() {
    for program in ["on_entry", "on_long"] {
        for arguments in [&[][..], &["h"]] {
            let mut probed = Probed::start(program, arguments);
            probed.ask("good");
            probed.ask("bad");
            probed.ask("good");
            let expected = Reads {
                read: 2 * GOOD,
                unread: BAD,
                wrong: 0,
            };
            assert_eq!(probed.reads(), expected, "{program}");
            probed.detach();
        }
    }
}

#[test]
fn strings_are_read_up_to_what_is_not_there() {
    let mut process = Binary::compile("reads.c", &[]).start(&[]);
    let (probes, attached) = attach(process.pid(), "on_string", "handle_string");
    let unread = ask(&mut process, "strings") as u64;
    let counts = probes.hits(&attached).entry;
    let reads = reads_of(&probes);
    let expected = Reads {
        read: counts.hits - unread,
        unread,
        wrong: 0,
    };
    assert_eq!(reads, expected);
}

#[test]
fn what_is_not_there_is_not_read_without_the_handler_either() {
    for command in ["block and bad", "replace and bad"] {
        let mut probed = Probed::start("on_entry", &[]);
        assert_eq!(probed.ask(command), 0);
        let expected = Reads {
            read: 1,
            unread: BAD,
            wrong: 0,
        };
        assert_eq!(probed.reads(), expected, "{command}");
        probed.detach();
    }
}

#[test]
fn memory_that_another_thread_unmaps_is_read_or_is_not() {
    for program in ["on_entry", "on_long"] {
        for commands in [
            &["race"][..],
            &["replace", "race"],
            &["block", "race"],
            &["stack", "race"],
        ] {
            let mut probed = Probed::start(program, &[]);
            for command in commands {
                assert_eq!(probed.ask(command), 0, "{commands:?}");
            }
            let reads = probed.reads();
            assert!(reads.read > 0 && reads.unread > 0, "{reads:?}");
            probed.detach();
        }
    }
}

#[test]
fn faults_reach_the_handler_of_the_process() {
    let mut probed = Probed::start("on_entry", &["h"]);
    let ask_all = |probed: &mut Probed| {
        assert_eq!(probed.ask("faults"), 100);
        assert_eq!(probed.ask("raise"), 2);
        assert_eq!(probed.ask("fork"), 10);
        assert_eq!(probed.ask("race"), 0);
        assert_eq!(probed.ask("faults"), 100);
    };
    ask_all(&mut probed);
    probed.ask("replace");
    ask_all(&mut probed);
    probed.detach();
    ask_all(&mut probed);
    // In place of the default.
    let mut probed = Probed::start("on_entry", &[]);
    probed.ask("good");
    probed.ask("replace");
    ask(&mut probed.process, "good");
    assert_eq!(probed.ask("faults"), 100);
    probed.detach();
    assert_eq!(probed.ask("faults"), 100);
}

#[test]
fn a_process_without_a_handler_dies_of_its_faults() {
    let mut probed = Probed::start("on_entry", &[]);
    probed.ask("good");
    // Forked, too.
    assert_eq!(probed.ask("fork"), -libc::SIGSEGV);
    probed.process.send("crash");
    let status = probed.process.wait();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");

    for sent in [Signal::SIGSEGV, Signal::SIGBUS] {
        let mut probed = Probed::start("on_entry", &[]);
        probed.ask("good");
        signal::kill(Pid::from_raw(probed.process.pid()), sent).unwrap();
        let status = probed.process.wait();
        assert_eq!(status.signal(), Some(sent as i32), "{status}");
    }
}

#[test]
fn handlers_are_as_before_when_the_probes_are_gone() {
    for arguments in [&[][..], &["h"]] {
        let binary = Binary::compile("reads.c", &[]);
        let mut process = binary.start(arguments);
        let before = handled(process.pid());
        for _ in 0..3 {
            let (mut probes, attached) = attach(process.pid(), "on_entry", "handle");
            assert_eq!(ask(&mut process, "bad"), 0);
            let _ = probes.detach(attached).unwrap();
            drop(probes);
            assert_eq!(handled(process.pid()), before);
        }
    }
}

/// On kernels that end the faults of a copy there. The example `reads` tries all of it, in a guest too.
#[test]
fn the_vdso_is_as_before_when_the_probes_are_gone() {
    let mut process = Binary::compile("reads.c", &[]).start(&[]);
    let before = vdso(process.pid());
    for _ in 0..3 {
        let (mut probes, attached) = attach(process.pid(), "on_entry", "handle");
        if vdso(process.pid()) == before {
            return common::require::skip_as("sgx", "this kernel's vDSO has no function of SGX");
        }
        assert_eq!(ask(&mut process, "bad"), 0);
        let _ = probes.detach(attached).unwrap();
        drop(probes);
        wait_until(|| vdso(process.pid()) == before);
        assert_eq!(ask(&mut process, "bad"), 0);
    }
}

#[test]
fn a_handler_that_is_installed_twice_does_not_lead_to_itself() {
    for arguments in [&[][..], &["h"]] {
        let mut process = Binary::compile("reads.c", &[]).start(arguments);
        let before = handled(process.pid());
        let mut runtime = Runtime::open(process.pid()).unwrap();
        runtime.load_guard().unwrap();
        runtime.install_guard().unwrap();
        runtime.install_guard().unwrap();
        if arguments == ["h"] {
            assert_eq!(ask(&mut process, "faults"), 100);
        }
        drop(runtime);
        assert_eq!(handled(process.pid()), before);
        if arguments == ["h"] {
            assert_eq!(ask(&mut process, "faults"), 100);
        }
    }
}

#[test]
#[ignore = "is the tool that another test kills"]
fn attach_and_wait() {
    let pid = std::env::var(TARGET).unwrap().parse().unwrap();
    let _attached = attach(pid, "on_entry", "handle");
    println!("attached");
    wait_until(|| false);
}

#[test]
fn handlers_are_as_before_when_the_tool_was_killed() {
    for arguments in [&[][..], &["h"]] {
        let mut process = Binary::compile("reads.c", &[]).start(arguments);
        let before = handled(process.pid());
        let mut tool = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attach_and_wait", "--ignored", "--nocapture"])
            .env(TARGET, process.pid().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(tool.stdout.take().unwrap()).lines();
        assert!(output.any(|line| line.unwrap().ends_with("attached")));
        tool.kill().unwrap();
        tool.wait().unwrap();
        wait_until(|| handled(process.pid()) == before);
        if arguments.is_empty() {
            process.send("crash");
            assert_eq!(process.wait().signal(), Some(libc::SIGSEGV));
        } else {
            wait_until(|| ask(&mut process, "faults") == 100);
        }
    }
}

#[test]
fn go_recovers_from_its_faults() {
    if Command::new("go").arg("version").output().is_err() {
        return common::require::skip("go is not installed");
    }
    let binary = Binary::compile_by("go", &["build"], "reads.go");
    let process = binary.start(&[]);
    let (probes, attached) = attach(process.pid(), "on_go", "main.handle");
    let mut probed = Probed {
        process,
        probes,
        attached: Some(attached),
        _binary: binary,
    };
    assert_eq!(probed.ask("go"), 1000);
    let reads = probed.reads();
    assert!(reads.read > 900 && reads.unread > 900, "{reads:?}");
    probed.detach();
}

/// A probed function whose first instruction faults: Go finds who called it, and recovers.
#[test]
fn faults_of_a_probed_go_function_are_recovered_from() {
    if Command::new("go").arg("version").output().is_err() {
        return common::require::skip("go is not installed");
    }
    let mut process = Binary::compile_by("go", &["build"], "reads.go").start(&[]);
    let (mut probes, attached) = attach(process.pid(), "on_go", "main.load");
    process.send("go");
    assert_eq!(process.line(), "1000");
    assert_eq!(probes.detach(attached).unwrap().entry.hits, 1000);
    process.send("");
}
