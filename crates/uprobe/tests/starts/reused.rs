//! A server that forks a child for each connection: what children have that ended is given to others.

use super::{common, counted, open};
use bpfcost_uprobe::{
    probes::{Attached, Probes},
    process::{Counts, Mapping, mappings},
};
use common::{Binary, Target, attach_at_entry};
use nix::{
    libc,
    sys::{ptrace, wait::waitpid},
    unistd::Pid,
};
use std::{fs::File, os::unix::fs::FileExt};

/// Children that can have memory at a time, and calls of each.
const AT_A_TIME: u64 = 1024;
const CALLS: u64 = 2;

struct Server {
    process: Target,
    probes: Probes,
    attached: Attached,
    _binary: Binary,
}

impl Server {
    fn start() -> Self {
        let binary = Binary::compile("connections.c", &[]);
        let process = binary.start(&[]);
        let mut probes = open();
        probes.follow_children();
        let attached = attach_at_entry(&mut probes, process.pid(), "count", "work").unwrap();
        Server {
            process,
            probes,
            attached,
            _binary: binary,
        }
    }

    fn ask(&mut self, command: &str) -> String {
        self.process.send(command);
        self.process.line()
    }

    fn serve(&mut self, connections: u64) {
        assert_eq!(self.ask(&format!("serve {connections}")), "served");
    }

    /// A child that waits.
    fn hold(&mut self) -> i32 {
        self.ask("hold").parse().unwrap()
    }

    fn counts(&self) -> Counts {
        self.probes.hits(&self.attached).entry
    }
}

/// Offset of the slots that a process has.
fn slots(pid: i32) -> u64 {
    let all = mappings(pid).unwrap();
    let mut own = all
        .iter()
        .filter(|one| one.name.contains("uprobe-children") && one.offset > 0);
    own.next().expect("it has slots").offset
}

#[test]
fn ten_thousand_connections_are_counted() {
    let mut server = Server::start();
    // One that stays meanwhile, and counts from time to time.
    server.hold();
    let mut calls = 0;
    for _ in 0..12 {
        server.serve(900);
        assert_eq!(server.ask("go 0"), "going");
        assert_eq!(server.ask("heard"), "worked");
        calls += 901 * CALLS;
        let expected = Counts {
            hits: calls,
            missed: 0,
        };
        assert_eq!(server.counts(), expected);
    }
    // What they left in maps of each thread stays, too.
    let [all, by_thread, ..] = counted(&mut server.probes);
    assert_eq!((all, by_thread), (calls, calls));
    // Nothing looks after them now.
    server.serve(AT_A_TIME);
    server.serve(AT_A_TIME);
    let Counts { hits, missed } = server.counts();
    assert_eq!(hits + missed, calls + 2 * AT_A_TIME * CALLS);
    assert!(missed > 0, "no more at a time have memory");
    server.serve(AT_A_TIME - 1);
    let more = (AT_A_TIME - 1) * CALLS;
    let expected = Counts {
        hits: hits + more,
        missed,
    };
    assert_eq!(
        server.probes.detach(server.attached).unwrap().entry,
        expected
    );
}

/// The locks of the table that a process has too, its largest map that is mapped once (rings are twice): numbers of 4
/// bytes, of holders.
struct Locks(Vec<u64>);

impl Locks {
    /// Bytes before the buckets of a table, and between the starts of two.
    const HEAD: u64 = 64;
    const DISTANCE: usize = 16;

    fn find(pid: i32) -> Self {
        let theirs = mappings(pid).unwrap();
        let maps = || theirs.iter().filter(|one| one.name.contains("uprobe-map"));
        let is_once = |map: &&Mapping| maps().filter(|one| one.inode == map.inode).count() == 1;
        let tables = maps().filter(is_once);
        let table = tables.max_by_key(|one| one.end - one.start).unwrap();
        let ours = mappings(std::process::id().cast_signed()).unwrap();
        let table = ours.iter().find(|one| one.inode == table.inode).unwrap();
        let first = table.start + Self::HEAD;
        Locks((first..).step_by(Self::DISTANCE).take(64).collect())
    }

    fn set(&self, holders: impl Fn(usize) -> u32) {
        let memory = File::options().write(true).open("/proc/self/mem").unwrap();
        for (index, &at) in self.0.iter().enumerate() {
            let holder = holders(index).to_ne_bytes();
            memory.write_all_at(&holder, at).unwrap();
        }
    }

    fn get(&self) -> Vec<u32> {
        let memory = File::open("/proc/self/mem").unwrap();
        let get = |&at: &u64| {
            let mut bytes = [0; 4];
            memory.read_exact_at(&mut bytes, at).unwrap();
            u32::from_ne_bytes(bytes)
        };
        self.0.iter().map(get).collect()
    }
}

#[test]
fn what_children_have_locked_that_ended_is_released() {
    let mut server = Server::start();
    server.hold();
    assert_eq!(server.ask("go 0"), "going");
    assert_eq!(server.ask("heard"), "worked");
    server.serve(600);
    // The first areas of the child that waits, and of one that ended: of the first process here.
    let holder = |child: u32| 1 << 15 | ((1 << 13) + 16 * child + 1);
    let locks = Locks::find(server.process.pid());
    locks.set(|index| holder(5 * (index as u32 % 2)));
    server.counts();
    let expected = [holder(0), 0].into_iter().cycle().take(64);
    assert_eq!(locks.get(), expected.collect::<Vec<_>>());
    locks.set(|_| 0);
}

/// Lets a stopped process go on to a system call.
fn go_on_to(pid: Pid, call: i64) {
    loop {
        ptrace::syscall(pid, None).unwrap();
        waitpid(pid, None).unwrap();
        if ptrace::getregs(pid).unwrap().orig_rax == call as u64 {
            return;
        }
    }
}

#[test]
fn no_two_children_count_in_the_same_memory() {
    let mut server = Server::start();
    server.serve(600);
    let first = server.hold();
    let pid = Pid::from_raw(first);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
    ptrace::interrupt(pid).unwrap();
    waitpid(pid, None).unwrap();
    assert_eq!(server.ask("go 0"), "going");
    // It took slots, and does not have them yet: they are taken for those of a child that ended.
    go_on_to(pid, libc::SYS_mremap);
    server.counts();
    // All but the last that are free, and the last, which were the first one's.
    server.serve(AT_A_TIME - 1);
    let second = server.hold();
    assert_eq!(server.ask("go 1"), "going");
    assert_eq!(server.ask("heard"), "worked");
    assert_eq!((slots(second) >> 12) / 1024, 600);
    // There are free ones for the first.
    server.counts();
    ptrace::detach(pid, None).unwrap();
    assert_eq!(server.ask("heard"), "worked");
    assert_ne!(slots(first), slots(second));
    let calls = (600 + AT_A_TIME - 1 + 2) * CALLS;
    let expected = Counts {
        hits: calls,
        missed: 0,
    };
    assert_eq!(
        server.probes.detach(server.attached).unwrap().entry,
        expected
    );
}
