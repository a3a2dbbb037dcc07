//! Memory that a thread is still in when the tool ends.

use super::{attach, compile, kill, run};
use crate::common::{Binary, Target, wait_until};
use bpfcost_uprobe::process::mappings;
use nix::{
    sys::signal::{Signal, kill as send},
    unistd::Pid,
};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The two ends of a tool.
#[derive(Clone, Copy)]
enum End {
    Detached,
    Killed,
}

/// Has the handler interrupt the thread. Returns the address at which it did.
fn interrupt(process: &mut Target) -> u64 {
    send(Pid::from_raw(process.pid()), Signal::SIGUSR1).unwrap();
    u64::from_str_radix(&process.line(), 16).unwrap()
}

/// Returns whether an address is in memory without a file that may be executed.
fn is_in_code(pid: i32, address: u64) -> bool {
    let all = mappings(pid).unwrap();
    let mut all = all.iter().filter(|mapping| mapping.contains(address));
    all.any(|mapping| mapping.is_executable() && mapping.name.is_empty())
}

/// Has a tool end while the thread's handler has interrupted its code, and another one come later.
fn end_in_it(arguments: &[&str], file: &Path, end: End) {
    let mut process = Binary::compile("waits.c", &[]).start(arguments);
    let pid = process.pid();
    let object = fs::read(file).unwrap();
    let mut interrupted = 0;
    let mut until_in_code = |process: &mut Target| {
        // Soon: the program, or the code around it, takes longer than the function.
        wait_until(|| {
            interrupted = interrupt(process);
            let is_in_it = is_in_code(pid, interrupted);
            if !is_in_it {
                process.send("go");
            }
            is_in_it
        });
    };
    match end {
        End::Detached => {
            let (mut probes, attached) = attach(pid, "work", &object);
            until_in_code(&mut process);
            probes.detach(attached).unwrap();
        }
        End::Killed => kill(pid, "work", file, || until_in_code(&mut process)),
    }
    // A killed one's tracer process tries for a while.
    let is_traced = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        !status.contains("TracerPid:\t0")
    };
    for _ in 0..200 {
        wait_until(|| !is_traced());
        let is_killed = matches!(end, End::Killed);
        assert!(
            is_in_code(pid, interrupted),
            "the thread is in it: {arguments:?}, killed: {is_killed}, {interrupted:#x}"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    process.send("go");
    wait_until(|| {
        run(pid, "work", &object);
        !is_in_code(pid, interrupted)
    });
    interrupt(&mut process);
    let (_, wrong) = process.stop();
    assert_eq!(wrong, 0);
}

/// Compiles an object of this folder into a file.
fn compiled(folder: &TempDir, name: &str) -> PathBuf {
    let file = folder.path().join(format!("{name}.bpf.o"));
    let source = format!("tests/left/{name}.bpf.c");
    fs::write(&file, compile::bpf(&source)).unwrap();
    file
}

#[test]
fn code_that_a_thread_is_in_stays_until_the_next_tool_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = compiled(&folder, "slow");
    for arguments in [&[][..], &["alternate"], &["leaves"]] {
        for end in [End::Detached, End::Killed] {
            end_in_it(arguments, &file, end);
        }
    }
}

/// Before and behind the program, where no frame says that the thread is there. Each time it is one of these places, or the
/// program.
#[test]
fn code_around_a_program_stays_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = compiled(&folder, "empty");
    for _ in 0..8 {
        end_in_it(&[], &file, End::Detached);
    }
}
