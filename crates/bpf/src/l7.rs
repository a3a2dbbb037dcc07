//! The kernel half of an agent that reconstructs requests: the first bytes of every call by which a server reads or
//! writes a connection. The programs, and what they see, are in `bpf/l7.bpf.c`.

use std::{
    fs,
    os::{linux::fs::MetadataExt as _, unix::ffi::OsStrExt as _},
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use libbpf_rs::{
    Link, MapCore, MapFlags, ProgramMut, RingBuffer, UprobeMultiOpts,
    skel::{OpenSkel as _, Skel as _, SkelBuilder as _},
};

use crate::{
    attach::tracepoint,
    error::{Result, failed, map_failed},
    links, maps,
    object::{OwnedSkeleton, choose},
    plain,
    skel::l7::{L7Skel, L7SkelBuilder, types},
    stats::RunStats,
};

/// The first process namespace of a machine (`PROC_PID_INIT_INO` of the kernel): its numbers are those
/// that programs see.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;
/// Connections that were open before are numbered from here on; those accepted since, from 0.
const OPEN_BEFORE: u64 = 1 << 62;

/// How long a server may take to close the connections of clients that have gone.
const FAREWELL: Duration = Duration::from_millis(200);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum L7Scope {
    /// System calls on sockets.
    Sockets,
    /// Also Go's `crypto/tls`.
    Tls,
    /// Also which goroutine each thread runs.
    Goroutines,
}

/// What a call did with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Got bytes from it.
    Read,
    /// Sent bytes.
    Write,
    /// Closed it.
    Close,
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Its process.
    pub process: u32,
    /// Whether it is one of `crypto/tls`; the socket under it is another.
    pub tls: bool,
    /// Distinguishes it from others of the process.
    pub number: u64,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct L7Call<'a> {
    /// On what.
    pub connection: ConnectionId,
    /// What it did.
    pub act: CallKind,
    /// When it returned (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Who made it, where that is known: always in `crypto/tls`, else with [`L7Scope::Goroutines`].
    pub goroutine: Option<u64>,
    /// Bytes that it moved.
    pub length: u64,
    /// The first 512 of them.
    pub payload: &'a [u8],
}

/// Where the functions of a Go program are, in bytes from the start of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionOffsets {
    /// Entry of `crypto/tls.(*Conn).Read`, and its return instructions.
    pub read: (usize, Vec<usize>),
    /// The same of `Write`.
    pub write: (usize, Vec<usize>),
    /// Entry of `Close`.
    pub close: usize,
    /// Entry of `runtime.casgstatus`.
    pub status: usize,
}

/// What was counted in the kernel since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L7Counts {
    /// Calls that are not reported, because the buffer was full or a program was skipped.
    pub lost: u64,
    /// Times that a goroutine began to run, with [`L7Scope::Goroutines`].
    pub switches: u64,
}

/// The programs. Dropping them detaches them.
pub struct L7 {
    /// Dropped before what they feed.
    links: Vec<Link>,
    watch: L7Scope,
    ring: RingBuffer<'static>,
    before: L7Counts,
    skeleton: OwnedSkeleton<L7Skel<'static>>,
}

impl L7 {
    /// Loads them; `take` is given every call, in [`L7::take`].
    pub fn load(watch: L7Scope, mut take: impl FnMut(&L7Call<'_>) + 'static) -> Result<Self> {
        let skeleton = OwnedSkeleton::new("l7", |storage| {
            let mut open = L7SkelBuilder::default().open(storage)?;
            choose(open.open_object_mut(), |name| wanted(name, watch));
            if let (Some(space), Some(chosen)) = (namespace(), open.maps.rodata_data.as_deref_mut())
            {
                (chosen.namespace_device, chosen.namespace_inode) = space;
            }
            open.load()
        })?;
        let ring = maps::ring(&skeleton.maps.l7_events, "l7_events", move |bytes| {
            if let Some(event) = plain::read::<types::l7_event>(bytes) {
                take(&call(&event));
            }
        })?;
        Ok(L7 {
            links: Vec::new(),
            watch,
            ring,
            before: L7Counts::default(),
            skeleton,
        })
    }

    /// Attaches them for these processes; each with the functions of its program, where more than sockets
    /// are watched.
    pub fn attach(&mut self, processes: &[(u32, FunctionOffsets)]) -> Result<()> {
        links::close(&mut self.links);
        let maps = &self.skeleton.maps;
        maps::empty(&maps.l7_processes, "l7_processes")?;
        maps::empty(&maps.l7_connections, "l7_connections")?;
        maps::empty(&maps.l7_calls, "l7_calls")?;
        maps::empty(&maps.l7_tls_calls, "l7_tls_calls")?;
        maps::empty(&maps.l7_goroutines, "l7_goroutines")?;
        // What is left of the time before is no call of now.
        self.take()?;
        self.before = self.counted()?;
        for (process, _) in processes {
            maps::put(&maps.l7_processes, "l7_processes", process, &1u8)?;
            for descriptor in sockets(*process) {
                let number = OPEN_BEFORE + u64::from(descriptor);
                let key = u64::from(*process) << 32 | u64::from(descriptor);
                maps::put(&maps.l7_connections, "l7_connections", &key, &number)?;
            }
        }
        if let Err(error) = self.link(processes) {
            links::close(&mut self.links);
            return Err(error);
        }
        Ok(())
    }

    fn link(&mut self, processes: &[(u32, FunctionOffsets)]) -> Result<()> {
        let programs = &self.skeleton.progs;
        // Exits before entries, so that no call is begun that is not ended.
        for (program, call) in [
            (&programs.l7_exit_call, "exit_read"),
            (&programs.l7_exit_call, "exit_write"),
            (&programs.l7_enter_close, "enter_close"),
            (&programs.l7_exit_accept, "exit_accept4"),
            (&programs.l7_enter_write, "enter_write"),
            (&programs.l7_enter_read, "enter_read"),
        ] {
            let link = tracepoint(program, &format!("syscalls:sys_{call}"))?;
            self.links.push(link);
        }
        for (process, places) in processes {
            if self.watch >= L7Scope::Goroutines {
                let status = [(places.status, 0)];
                let link = uprobes(&programs.l7_goroutine, *process, &status)?;
                self.links.push(link);
            }
            if self.watch >= L7Scope::Tls {
                let (read, write) = (&places.read, &places.write);
                let returns = read.1.iter().chain(&write.1);
                let returns: Vec<_> = returns.map(|offset| (*offset, 0)).collect();
                let entries = [
                    (read.0, types::l7_kind::L7_READ),
                    (write.0, types::l7_kind::L7_WRITE),
                    (places.close, types::l7_kind::L7_CLOSE),
                ]
                .map(|(offset, kind)| (offset, kind.0.into()));
                let link = uprobes(&programs.l7_tls_return, *process, &returns)?;
                self.links.push(link);
                let link = uprobes(&programs.l7_tls_enter, *process, &entries)?;
                self.links.push(link);
            }
        }
        Ok(())
    }

    /// Reads the calls that are there.
    pub fn take(&self) -> Result<()> {
        self.ring
            .consume()
            .map_err(map_failed("l7_events", "reading the ring buffer"))
    }

    /// Detaches them, reads the remaining events, and returns the counts since they were attached. Waits a
    /// while for connections accepted meanwhile to close: requests of a client that has gone are read and
    /// answered all the same.
    pub fn detach(&mut self) -> Result<L7Counts> {
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && self.serves() {
            sleep(LOOK);
            self.take()?;
        }
        links::close(&mut self.links);
        self.take()?;
        let now = self.counted()?;
        Ok(L7Counts {
            lost: now.lost - self.before.lost,
            switches: now.switches - self.before.switches,
        })
    }

    /// Whether a connection is open that was accepted since they were attached.
    fn serves(&self) -> bool {
        let connections = &self.skeleton.maps.l7_connections;
        connections.keys().any(|key| {
            let number = connections.lookup(&key, MapFlags::ANY).ok().flatten();
            let number = number.and_then(|number| plain::read::<u64>(&number));
            number.is_some_and(|number| number < OPEN_BEFORE)
        })
    }

    fn counted(&self) -> Result<L7Counts> {
        let mut all = L7Counts::default();
        for count in maps::of_cpus(&self.skeleton.maps.l7_counts, "l7_counts")? {
            if let Some(count) = plain::read::<types::l7_count>(&count) {
                all.lost += count.lost;
                all.switches += count.switches;
            }
        }
        let programs = self.skeleton.object().progs_mut();
        for program in programs.filter(|program| program.autoload()) {
            all.lost += RunStats::of(&program)?.recursion_misses;
        }
        Ok(all)
    }
}

/// Whether a program is one of what is watched.
fn wanted(program: &str, watch: L7Scope) -> bool {
    match program {
        "l7_tls_enter" | "l7_tls_return" => watch >= L7Scope::Tls,
        "l7_goroutine" => watch >= L7Scope::Goroutines,
        _ => true,
    }
}

/// The process namespace that this program is in, as device and inode; `None` in the machine's own.
pub(crate) fn namespace() -> Option<(u64, u64)> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    (namespace.st_ino() != FIRST_NAMESPACE).then(|| (namespace.st_dev(), namespace.st_ino()))
}

/// Attaches a program to places in the program of a process, each with a cookie.
fn uprobes(program: &ProgramMut<'_>, process: u32, places: &[(usize, u64)]) -> Result<Link> {
    let file = format!("/proc/{process}/exe");
    let options = UprobeMultiOpts {
        offsets: places.iter().map(|(offset, _)| *offset).collect(),
        cookies: places.iter().map(|(_, cookie)| *cookie).collect(),
        ..Default::default()
    };
    let link = program.attach_uprobe_multi_with_opts(process.cast_signed(), file, "", options);
    link.map_err(failed(
        format!("process {process}"),
        "attaching uprobes to its program",
    ))
}

/// The descriptors of a process that are sockets.
fn sockets(process: u32) -> Vec<u32> {
    let folder = fs::read_dir(Path::new("/proc").join(process.to_string()).join("fd"));
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let is_one = target.as_os_str().as_bytes().starts_with(b"socket:");
        is_one.then(|| entry.file_name().to_str()?.parse().ok())?
    };
    folder
        .into_iter()
        .flatten()
        .filter_map(|entry| socket(entry.ok()?))
        .collect()
}

/// An event as a call.
fn call(event: &types::l7_event) -> L7Call<'_> {
    L7Call {
        connection: ConnectionId {
            process: event.process,
            tls: event.tls != 0,
            number: event.connection,
        },
        act: match event.kind {
            types::l7_kind::L7_READ => CallKind::Read,
            types::l7_kind::L7_WRITE => CallKind::Write,
            _ => CallKind::Close,
        },
        time_ns: event.time_ns,
        goroutine: (event.goroutine != 0).then_some(event.goroutine),
        length: event.length,
        payload: &event.payload[..(event.kept as usize).min(event.payload.len())],
    }
}
