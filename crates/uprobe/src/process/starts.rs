//! Processes that start a file, stopped before its own code runs.
//!
//! A kernel uprobe where the file begins ([`start_point`](super::start_point)) is hit once a start. Its program
//! (`bpf/starts.bpf.c`) sends the process SIGSTOP, as no other thing stops a process before it is back in user space:
//! its parent may see that it stopped, and that it goes on. What is stopped stands in a map of the kernel, which
//! another process has as well: when the tool ends, however it does, that one lets the processes go.

#![allow(unsafe_code, reason = "a file that libbpf owns")]

use super::{
    child::{Child, this_process},
    error::{Error, Result},
    start_point::start_point,
};
use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, Program, RingBuffer,
    RingBufferBuilder,
};
use rustix::{
    event::{PollFd, PollFlags},
    fd::{AsFd, BorrowedFd, OwnedFd},
    process::{Pid, Signal, kill_process},
};
use std::{collections::BTreeSet, fs, io, path::Path, rc::Rc, thread, time::Duration};

/// The compiled `bpf/starts.bpf.c`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/starts.o"));
/// The program.
const PROGRAM: &str = "on_start";
/// The initial PID namespace, whose numbers the program sees (PROC_PID_INIT_INO).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Number of times the process that lets others go looks for more once the uprobe is gone, and how long it waits in between.
const LAST_PASSES: u32 = 20;
const PASS_INTERVAL: Duration = Duration::from_millis(1);

/// Whose starts of a file are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starters<'a> {
    /// Starts by all processes.
    All,
    /// Starts by these processes and their descendants, as far as no process in between has ended.
    DescendantsOf(&'a [i32]),
}

/// Stops processes that start one of some files.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut probes: bpfcost_uprobe::probes::Probes = todo!();
/// use bpfcost_uprobe::{probes::{At, Place}, process::{Image, Starters, Starts}};
///
/// let mut starts = Starts::new(&["/usr/bin/app".as_ref()], Starters::All)?;
/// loop {
///     for started in starts.wait(std::time::Duration::from_secs(1))? {
///         let function = Image::of_program(started.pid())?.function("main")?;
///         let place = Place { program: "count", function: &function, at: At::Entry, cookie: 0 };
///         let attached = probes.attach(started.pid(), &[place])?;
///         // Dropped, `started` goes on.
///     }
/// }
/// # }
/// ```
///
/// A process that starts a file several times, or executes several of the files, is stopped for each of them. The
/// function at the file's entry point (`_start`) can't be probed meanwhile: the kernel's breakpoint is there.
#[derive(Debug)]
pub struct Starts {
    /// Before the rest: without them, no process is stopped any more.
    links: Vec<Link>,
    wakeups: RingBuffer<'static>,
    waiting: Rc<Waiting>,
    roots: MapHandle,
    missed: MapHandle,
    /// Stops that were handed out.
    known: BTreeSet<Stop>,
    object: Object,
}

/// A process that is stopped where a file begins. Dropped, it goes on.
#[derive(Debug)]
pub struct Started {
    stop: Stop,
    waiting: Rc<Waiting>,
}

/// The process and the time of a stop, as the program writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stop([u8; 16]);

/// The stopped processes, and the process that lets them go after this one's end.
#[derive(Debug)]
struct Waiting {
    map: MapHandle,
    custodian: Option<Child>,
}

impl Starts {
    /// Returns whether starts can be followed from here: not in a container with process numbers of its own.
    pub fn is_supported() -> bool {
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        namespace.ends_with(FIRST_NAMESPACE)
    }

    /// Returns whether a file has code that each process executes first of it: not all libraries do.
    pub fn can_follow(file: &Path) -> bool {
        start_point(file).is_ok()
    }

    /// Begins to stop processes that start one of these files: programs or shared libraries.
    pub fn new(files: &[&Path], whose: Starters<'_>) -> Result<Self> {
        if !Self::is_supported() {
            let reason = "the numbers of processes are others in this PID namespace\n  run this tool outside of it, or probe \
                          processes that run already";
            return Err(Error::system(
                "starts of processes can't be followed in a container",
                io::Error::other(reason),
            ));
        }
        let points = files
            .iter()
            .map(|path| Ok((*path, start_point(path)?)))
            .collect::<Result<Vec<_>>>()?;
        let failed = |source| failed("the BPF program that stops processes", source);
        let opened = ObjectBuilder::default().open_memory(OBJECT);
        let object = opened.and_then(|opened| opened.load()).map_err(failed)?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            MapHandle::try_from(&map.expect("bpf/starts.bpf.c has it")).map_err(failed)
        };
        let mut builder = RingBufferBuilder::new();
        let ring = map("wakeups")?;
        builder.add(&ring, |_| 0).map_err(failed)?;
        let roots = map("roots")?;
        let all: &[i32] = match whose {
            Starters::All => &[0],
            Starters::DescendantsOf(pids) => pids,
        };
        for pid in all {
            let update = roots.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY);
            update.map_err(failed)?;
        }
        let mut starts = Starts {
            links: Vec::new(),
            wakeups: builder.build().map_err(failed)?,
            waiting: Rc::new(Waiting {
                map: map("waiting")?,
                custodian: None,
            }),
            roots,
            missed: map("missed")?,
            known: BTreeSet::new(),
            object,
        };
        starts.attach(&points)?;
        Ok(starts)
    }

    /// Also stops what this process, or one that descends from it, starts from now on. With [`Starters::All`], it stops
    /// them anyway.
    pub fn add_starter(&self, pid: i32) -> Result<()> {
        let added = self.roots.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY);
        added.map_err(|source| failed("the BPF program that stops processes", source))
    }

    /// Takes back [`Self::add_starter`]: a process that ended, whose number another may get.
    pub fn remove_starter(&self, pid: i32) {
        let _ = self.roots.delete(&pid.to_ne_bytes());
    }

    /// Attaches the uprobes, once there is a process that lets others go.
    fn attach(&mut self, points: &[(&Path, u64)]) -> Result<()> {
        let failed = |source| failed("the BPF program that stops processes", source);
        let tool = this_process().map_err(|error| Error::system("pidfd_open", error))?;
        let waiting = Rc::get_mut(&mut self.waiting).expect("none is handed out yet");
        let mut programs = self.object.progs_mut();
        let program = programs.find(|program| program.name() == PROGRAM);
        let program = program.expect("bpf/starts.bpf.c has it");
        let id = Program::id_from_fd(program.as_fd()).map_err(failed)?;
        let files = [tool.as_fd(), waiting.map.as_fd()];
        let custodian = Child::fork(&files, || outlive(&tool, &waiting.map, id));
        waiting.custodian = Some(custodian.map_err(|error| Error::system("fork", error))?);
        for (path, offset) in points {
            let link = program.attach_uprobe(false, -1, path, *offset as usize);
            self.links.push(link.map_err(failed)?);
        }
        Ok(())
    }

    /// The processes that were stopped, and not handed out yet. Waits for one for so long.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<Started>> {
        let waited = self.wakeups.poll(timeout);
        match waited {
            // A signal came.
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                return Err(failed("waiting for starts of processes", error));
            }
            _ => {}
        }
        let mut here = BTreeSet::new();
        let mut started = Vec::new();
        for (stop, is_sent) in self.waiting.stops() {
            if !is_sent {
                continue;
            }
            here.insert(stop);
            if self.known.insert(stop) {
                started.push(Started {
                    stop,
                    waiting: Rc::clone(&self.waiting),
                });
            }
        }
        self.known.retain(|stop| here.contains(stop));
        Ok(started)
    }

    /// Returns how many starts there were so far whose process could not be stopped: of too many at once.
    pub fn missed(&self) -> u64 {
        let count = self.missed.lookup(&[0; 4], MapFlags::ANY);
        let bytes = count.ok().flatten().unwrap_or_default();
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    }
}

impl AsFd for Starts {
    /// A file that can be read once a process has been stopped, for `poll`.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: libbpf's, open as long as the buffer, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.wakeups.epoll_fd()) }
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        // A fork that another thread makes just now has the links, too, for a moment.
        for root in self.roots.keys() {
            let _ = self.roots.delete(&root);
        }
        // From here on no process is stopped any more. Those that were handed out go on when they are dropped.
        self.links.clear();
        for (stop, _) in self.waiting.stops() {
            if !self.known.contains(&stop) {
                self.waiting.let_go(stop);
            }
        }
    }
}

impl Started {
    /// The process. It is stopped, so that another can't have its number, unless it is killed.
    pub fn pid(&self) -> i32 {
        self.stop.pid()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.waiting.let_go(self.stop);
    }
}

impl Stop {
    fn pid(self) -> i32 {
        i32::from_ne_bytes(self.0[..4].try_into().expect("4 bytes"))
    }
}

impl Waiting {
    /// The stops in the map, and whether the process was sent the signal.
    fn stops(&self) -> Vec<(Stop, bool)> {
        stops(&self.map)
    }

    /// Lets a process go on. First the signal: a tool that ends in between would leave it stopped.
    fn let_go(&self, stop: Stop) {
        go_on(stop);
        let _ = self.map.delete(&stop.0);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // None is left: each `Started` has this one.
        if let Some(custodian) = &self.custodian {
            custodian.kill();
        }
    }
}

/// Waits for the tool's end, and lets go what is stopped then.
fn outlive(tool: &OwnedFd, map: &MapHandle, program: u32) {
    let mut end = [PollFd::new(tool, PollFlags::IN)];
    while !matches!(rustix::event::poll(&mut end, None), Ok(1..)) {}
    // The uprobe ends with the tool's last file. Before Linux 6.12, the program may run for a moment longer.
    let mut left = LAST_PASSES;
    while left > 0 {
        if Program::fd_from_id(program).is_err() {
            left -= 1;
        }
        for (stop, _) in stops(map) {
            go_on(stop);
        }
        thread::sleep(PASS_INTERVAL);
    }
}

fn stops(map: &MapHandle) -> Vec<(Stop, bool)> {
    let stop = |key: Vec<u8>| {
        let sent = map.lookup(&key, MapFlags::ANY).ok().flatten()?;
        Some((Stop(key.try_into().ok()?), sent == [1]))
    };
    map.keys().filter_map(stop).collect()
}

/// Takes the stop of a process back, or its signal where it did not stop yet.
fn go_on(stop: Stop) {
    if let Some(pid) = Pid::from_raw(stop.pid()) {
        let _ = kill_process(pid, Signal::CONT);
    }
}

fn failed(what: &str, source: libbpf_rs::Error) -> Error {
    Error::system(what, io::Error::other(source))
}
