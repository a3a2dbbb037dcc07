//! Processes that filter their system calls: what their filters let pass is not refused.

mod common;
#[path = "common/compile.rs"]
mod compile;

use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::{Attached, Error, Probes},
    process::{self, Counts},
};
use common::{Binary, Target, attach_at_entry, require, wait_until};
use nix::libc;

/// A server that is killed for one system call.
struct Server {
    process: Target,
    _binary: Binary,
}

impl Server {
    fn without(call: i64) -> Self {
        let binary = Binary::compile("connections.c", &[]);
        Server {
            process: binary.start(&[&call.to_string()]),
            _binary: binary,
        }
    }

    /// Serves so many connections, each by a child that calls twice.
    fn serve(&mut self, connections: u64) {
        self.process.send(&format!("serve {connections}"));
        assert_eq!(self.process.line(), "served");
    }
}

fn open(source: &str) -> Probes {
    let object = LoadedObject::from_bytes("object", &compile::bpf(source), &Choice::default());
    let mut probes = Probes::new(object.unwrap()).unwrap();
    probes.follow_children();
    probes
}

fn unless_skipped(attached: Result<Attached, Error>) -> Option<Result<Attached, Error>> {
    match attached {
        Err(Error::Process(error @ process::Error::Seccomp { .. })) => {
            require::skip(error);
            None
        }
        attached => Some(attached),
    }
}

/// Attaches a program at `work`; `None` on a kernel without `CONFIG_CHECKPOINT_RESTORE`, which can't suspend filters: the test is
/// skipped.
fn attach(probes: &mut Probes, server: &Server, program: &str) -> Option<Result<Attached, Error>> {
    unless_skipped(attach_at_entry(
        probes,
        server.process.pid(),
        program,
        "work",
    ))
}

const COUNT: &str = "tests/starts/count.bpf.c";
const READS: &str = "tests/reads/reads.bpf.c";

/// The object's variables.
fn variables(probes: &Probes) -> Vec<u64> {
    let bytes = probes.map(".bss").unwrap().get(&[0; 4]).unwrap().unwrap();
    let numbers = bytes.chunks_exact(8);
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    numbers.map(number).collect()
}

/// As those of containers deny system calls that probes never make.
#[test]
fn filters_of_other_calls_change_nothing() {
    let mut server = Server::without(libc::SYS_bpf);
    let mut probes = open(COUNT);
    let Some(attached) = attach(&mut probes, &server, "count") else {
        return;
    };
    let attached = attached.unwrap();
    server.serve(50);
    let expected = Counts {
        hits: 100,
        missed: 0,
    };
    assert_eq!(probes.detach(attached).unwrap().entry, expected);
    assert_eq!(variables(&probes), [100]);
    // Numbers that are no addresses.
    let mut server = Server::without(libc::SYS_ptrace);
    let mut probes = open(READS);
    let attached = attach(&mut probes, &server, "on_entry").unwrap().unwrap();
    server.serve(50);
    assert_eq!(probes.detach(attached).unwrap().entry, expected);
    assert_eq!(variables(&probes), [0, 100, 0]);
}

#[test]
fn children_that_may_not_take_memory_are_not_followed() {
    let mut server = Server::without(libc::SYS_mremap);
    let mut probes = open(COUNT);
    let Some(attached) = attach(&mut probes, &server, "count") else {
        return;
    };
    let attached = attached.unwrap();
    // None is killed.
    server.serve(5);
    assert_eq!(probes.detach(attached).unwrap().entry, Counts::default());
    assert_eq!(variables(&probes), [0]);
}

#[test]
fn programs_whose_calls_may_not_pass_are_refused_with_the_call() {
    for (source, program, call, name) in [
        (COUNT, "count", libc::SYS_gettid, "gettid"),
        (READS, "on_entry", libc::SYS_gettid, "gettid"),
        (
            READS,
            "on_entry",
            libc::SYS_process_vm_readv,
            "process_vm_readv",
        ),
    ] {
        let mut server = Server::without(call);
        let Some(refused) = attach(&mut open(source), &server, program) else {
            return;
        };
        let text = refused.unwrap_err().to_string();
        let says = format!("may not let {name} pass");
        assert!(text.contains(&says), "{text}");
        server.serve(5);
    }
}

/// Each thread has filters of its own.
#[test]
fn a_filter_of_any_thread_counts() {
    let mut process = Binary::compile("busy.c", &[]).start(&["2", "r"]);
    let pid = process.pid();
    let is_filtered = |thread: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status"));
        status.is_ok_and(|status| status.contains("Seccomp:\t2"))
    };
    let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = || threads().map(|one| one.unwrap().file_name().into_string().unwrap());
    wait_until(|| names().filter(|one| is_filtered(one)).count() == 2);
    assert!(!is_filtered(&pid.to_string()));
    let mut probes = open(COUNT);
    let attached = attach_at_entry(&mut probes, process.pid(), "count", "work");
    let Some(refused) = unless_skipped(attached) else {
        return;
    };
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("may not let getuid pass"), "{error}");
    assert_eq!(process.stop().1, 0);
}
