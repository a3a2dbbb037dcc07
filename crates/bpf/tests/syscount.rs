//! The counter of system calls on a program whose calls are known: `dd` copies so many blocks, each with a read
//! and a write, and the kernel's own account (`/proc/PID/io`) says the same.

mod require;

use std::{
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bpfcost_bpf::syscount::{Filter, SyscallCounts, Syscount};

const BLOCKS: u64 = 1000;

/// A `dd` that waits for the first of its blocks.
fn copier() -> Child {
    let count = format!("count={BLOCKS}");
    Command::new("dd")
        .args([
            "of=/dev/null",
            "bs=512",
            "iflag=fullblock",
            "status=none",
            &count,
        ])
        .stdin(Stdio::piped())
        .spawn()
        .expect("dd starts")
}

/// Reads and writes so far by the kernel's account.
fn account(process: u32) -> [u64; 2] {
    let text = fs::read_to_string(format!("/proc/{process}/io")).expect("an account");
    ["syscr: ", "syscw: "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.parse().ok()).expect("a count")
    })
}

fn calls_of(calls: &SyscallCounts, process: u32, number: i64) -> u64 {
    let kinds = calls.sums.iter();
    let of = kinds.filter(|(kind, _)| kind.process == process && i64::from(kind.number) == number);
    of.map(|(_, sum)| sum.calls).sum()
}

/// Counts calls during a `dd`: its own, or everyone's.
fn count(filter: Filter, pick: impl Fn(&Child) -> u32) -> (u32, [u64; 2], SyscallCounts) {
    let mut counter = Syscount::load(filter).expect("loaded");
    let mut child = copier();
    let process = child.id();
    // It waits in a read that begins before the counter is attached.
    while !fs::read_to_string(format!("/proc/{process}/wchan")).is_ok_and(|at| at.contains("pipe"))
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = account(process);
    counter.attach(&[pick(&child)]).expect("attached");
    let mut blocks = child.stdin.take().expect("a pipe");
    blocks
        .write_all(&[0; 512 * BLOCKS as usize])
        .expect("it reads");
    // Gone, and not taken from the kernel's list yet, so that its account can be read.
    while !fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| stat.contains(") Z "))
    {
        counter.poll(Duration::from_millis(5)).expect("events");
    }
    let after = account(process);
    let calls = counter.detach().expect("counts");
    child.wait().expect("it ended");
    (process, [after[0] - before[0], after[1] - before[1]], calls)
}

#[test]
fn every_call_of_the_process_that_is_asked_about_is_counted() {
    if !require::host() {
        return;
    }
    for filter in [Filter::Kernel, Filter::User, Filter::All] {
        let (process, account, calls) = count(filter, Child::id);
        let [reads, writes] =
            [libc::SYS_read, libc::SYS_write].map(|number| calls_of(&calls, process, number));
        assert_eq!(calls.lost, 0, "{filter:?}");
        assert_eq!(writes, BLOCKS, "{filter:?}");
        assert_eq!(writes, account[1], "{filter:?}");
        assert_eq!(reads, BLOCKS - 1, "{filter:?}: the first one began before");
        assert_eq!(reads, account[0] - 1, "{filter:?}");
        let others = calls.sums.keys().any(|kind| kind.process != process);
        assert_eq!(others, filter == Filter::All, "{filter:?}");
        // Each came by both programs, those of others too.
        assert!(calls.entered >= reads + writes && calls.left >= reads + writes);
    }
}

#[test]
fn nothing_is_counted_of_a_process_that_is_not_asked_about() {
    if !require::host() {
        return;
    }
    for filter in [Filter::Kernel, Filter::User] {
        let (_, _, calls) = count(filter, |_| 1);
        assert!(
            calls.sums.keys().all(|kind| kind.process == 1),
            "{filter:?}"
        );
        assert!(calls.entered >= 2 * BLOCKS, "{filter:?}: its calls come by");
    }
}
