//! The agent that counts system calls, on a process whose calls are known: it reads and writes a byte at a time.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Command, Stdio},
};

use bpfcost_process::RunContext;
use serde_json::Value;

use crate::{
    agent::{Agent, Running},
    definition::able,
};

/// Bytes that it is sent.
const BYTES: u64 = 500;

/// An agent that is loaded.
fn agent(filter: &str) -> Agent {
    let mut agent = Agent::start("syscount", &[filter]);
    assert!(agent.hear()["loaded"].is_object(), "{filter}");
    agent
}

/// Counts of an agent while `cat` sends [`BYTES`] back, one by one.
fn counted(agent: &mut Agent, target: &str) -> Value {
    let mut cat = Command::new("cat");
    let cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut cat = Running(cat.expect("cat starts"));
    let mut to = cat.0.stdin.take().expect("its input");
    let mut from = cat.0.stdout.take().expect("its output");
    let mut echo = || {
        to.write_all(b"x").expect("it reads");
        from.read_exact(&mut [0]).expect("it writes");
    };
    // Its start is over.
    echo();
    let context = RunContext {
        pids: vec![cat.0.id()],
        factors: [("target".to_owned(), target.to_owned())].into(),
        ..RunContext::default()
    };
    assert_eq!(agent.attach(&context), "attached", "{target}");
    (0..BYTES).for_each(|_| echo());
    agent.counts()
}

#[test]
fn calls_are_told_of_whom_is_asked_about_alone() {
    if !able(&["cat"]) {
        return;
    }
    for filter in ["kernel", "user", "all"] {
        let mut agent = agent(filter);
        let of_server = counted(&mut agent, "traced");
        let count = |counts: &Value, name: &str| counts[name].as_u64();
        for name in ["calls_read", "calls_write"] {
            let calls = count(&of_server, name).expect(name);
            // It was in a read when it was attached to, and is in another one now.
            let least = BYTES - 1;
            match filter {
                "all" => assert!(calls >= least, "{filter}: {of_server}"),
                _ => assert!((least..=BYTES).contains(&calls), "{filter}: {of_server}"),
            }
            let took = count(&of_server, &format!("{name}_ns"));
            assert!(took > Some(0), "{filter}: {of_server}");
        }
        let of_sleeper = counted(&mut agent, "bystander");
        match filter {
            "all" => assert!(
                count(&of_sleeper, "syscalls") >= Some(BYTES),
                "{of_sleeper}"
            ),
            _ => assert_eq!(of_sleeper, serde_json::json!({ "syscalls": 0 }), "{filter}"),
        }
        assert!(agent.end().success());
    }
}

/// Asked about a thread, the agent looks for a process of that number, and the kernel's account is that of the
/// thread's process.
#[test]
fn counts_that_are_not_those_of_the_kernel_are_not_told() {
    if !able(&[]) {
        return;
    }
    let thread = std::fs::read_link("/proc/thread-self").expect("a thread");
    let thread = thread
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    let context = RunContext {
        pids: thread.into_iter().collect(),
        ..RunContext::default()
    };
    assert_ne!(
        context.pids,
        [std::process::id()],
        "a test has a thread of its own"
    );
    for filter in ["kernel", "user", "all"] {
        let mut agent = agent(filter);
        assert_eq!(agent.attach(&context), "attached");
        let mut zeros = File::open("/dev/zero").expect("zeros");
        for _ in 0..BYTES {
            zeros.read_exact(&mut [0]).expect("a zero");
        }
        let said = agent.detach();
        assert_eq!(
            said["invalid"]["check"], "reads of the server",
            "{filter}: {said}"
        );
        assert_eq!(said["invalid"]["got"], "0", "{filter}: {said}");
    }
}
