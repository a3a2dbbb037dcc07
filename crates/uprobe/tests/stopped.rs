//! Processes that are stopped for a moment, and system calls that they make for us.

mod common;

use bpfcost_uprobe::process::{Error, Memory, Remote, Stopped};
use common::{Binary, Target};
use std::{collections::BTreeSet, process::Command};

/// The kernel's largest process ID is smaller.
const NO_PROCESS: i32 = 1 << 23;

/// The threads of a process; but for those that have ended, and may be listed until somebody waits for them.
fn tasks(pid: i32) -> BTreeSet<i32> {
    let folder = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&folder).unwrap();
    let threads = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let lives = |thread: &String| {
        let stat = std::fs::read_to_string(format!("{folder}/{thread}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |(_, state)| state);
        !state.starts_with(['Z', 'X'])
    };
    threads
        .filter(lives)
        .map(|thread| thread.parse().unwrap())
        .collect()
}

#[test]
fn all_threads_stop_and_go_on_while_others_come_and_go() {
    let mut process = Binary::compile("busy.c", &[]).start(&["8", "ct"]);
    for _ in 0..100 {
        let stopped = Stopped::all(process.pid()).unwrap();
        let threads: BTreeSet<i32> = stopped.threads().collect();
        assert_eq!(threads, tasks(process.pid()));
        let before: Vec<u64> = stopped
            .threads()
            .map(|tid| stopped.registers(tid).unwrap().rip)
            .collect();
        std::thread::yield_now();
        let after: Vec<u64> = stopped
            .threads()
            .map(|tid| stopped.registers(tid).unwrap().rip)
            .collect();
        assert_eq!(before, after);
    }
    let (calls, wrong) = process.stop();
    assert!(calls > 0);
    assert_eq!(wrong, 0);
}

#[test]
fn remote_system_calls_leave_no_trace_in_threads_that_work_or_wait() {
    // Its threads are in nanosleep, poll and futex most of the time: those are interrupted and restarted.
    for mode in ["b", "bt"] {
        make_calls(Binary::compile("busy.c", &[]).start(&["3", mode]));
    }
}

fn make_calls(mut process: Target) {
    let memory = Memory::open(process.pid()).unwrap();
    for _ in 0..200 {
        let stopped = Stopped::one(process.pid()).unwrap();
        let tid = stopped.threads().next().unwrap();
        let before = stopped.registers(tid).unwrap();
        let mut remote = Remote::new(&stopped, &memory).unwrap();
        assert_eq!(
            remote.call("getpid", libc::SYS_getpid, [0; 6]).unwrap(),
            process.pid() as u64
        );
        let error = remote
            .call(
                "close",
                libc::SYS_close,
                [u64::from(u32::MAX), 0, 0, 0, 0, 0],
            )
            .unwrap_err();
        assert!(
            matches!(&error, Error::Remote { call: "close", .. }),
            "{error}"
        );
        remote.finish().unwrap();
        assert_eq!(stopped.registers(tid).unwrap(), before);
    }
    for _ in 0..100 {
        let stopped = Stopped::all(process.pid()).unwrap();
        let mut remote = Remote::new(&stopped, &memory).unwrap();
        assert_eq!(
            remote.call("getpid", libc::SYS_getpid, [0; 6]).unwrap(),
            process.pid() as u64
        );
    }
    assert_eq!(process.stop().1, 0);
}

#[test]
fn a_process_that_was_stopped_by_a_signal_stays_so() {
    let mut process = Binary::compile("busy.c", &[]).start(&["2"]);
    let pid = nix::unistd::Pid::from_raw(process.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let state = || {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .split(' ')
            .nth(2)
            .unwrap()
            .to_owned()
    };
    while state() != "T" {
        std::thread::yield_now();
    }
    drop(Stopped::all(process.pid()).unwrap());
    // It stops again as soon as it runs.
    while state() != "T" {
        std::thread::yield_now();
    }
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(process.stop().1, 0);
}

/// A thread in vfork does not stop before its child goes on, and that child waits for the process's other thread.
#[test]
fn a_thread_that_is_late_holds_no_other() {
    let mut process = Binary::compile("late.c", &[]).start(&["v"]);
    let stopped = Stopped::all(process.pid()).unwrap();
    assert!(stopped.threads().count() >= 2, "{stopped:?}");
    drop(stopped);
    assert_eq!(process.stop().1, 0);
}

#[test]
fn a_process_that_dies_meanwhile_is_an_error() {
    let mut process = Binary::compile("busy.c", &[]).start(&["4"]);
    let memory = Memory::open(process.pid()).unwrap();
    let stopped = Stopped::all(process.pid()).unwrap();
    let mut remote = Remote::new(&stopped, &memory).unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(process.pid()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    let error = loop {
        match remote.call("getpid", libc::SYS_getpid, [0; 6]) {
            Ok(_) => continue,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    drop(remote);
    drop(stopped);
    assert!(Stopped::all(process.pid()).is_err());
    process.kill();
}

#[test]
fn a_process_that_is_not_there_or_traced_is_refused() {
    let error = Stopped::all(NO_PROCESS).unwrap_err();
    assert!(matches!(error, Error::NoProcess { .. }), "{error}");

    let process = Binary::compile("busy.c", &[]).start(&["1"]);
    let pid = process.pid();
    let _stopped = Stopped::all(pid).unwrap();
    let error = Stopped::all(pid).unwrap_err();
    assert!(
        matches!(error, Error::Traced { tracer, .. } if tracer != 0),
        "{error}"
    );
}

#[test]
fn a_zombie_is_no_process() {
    let mut child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let error = Stopped::all(child.id() as i32).unwrap_err();
    assert!(matches!(error, Error::NoProcess { .. }), "{error}");
    assert!(child.wait().unwrap().success());
}
