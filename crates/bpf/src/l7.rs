//! The kernel half of an agent that reconstructs requests: the first bytes of every call by which a server reads or
//! writes a connection. The programs, and what they see, are in `bpf/l7.bpf.c`.

mod places;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, hash_map::Entry},
    fs,
    os::linux::fs::MetadataExt as _,
    rc::Rc,
    thread::sleep,
    time::{Duration, Instant},
};

use bpfcost_uprobe::{object::Choice, process::Function};
use libbpf_rs::{Link, MapCore as _, MapFlags};

use crate::{
    Space,
    agent_programs::{AgentPrograms, KernelPrograms, ProcessPrograms},
    attach::tracepoint,
    error::Result,
    object::OpenNamed,
    plain, shared,
    stats::RunStats,
};

/// The first process namespace of a machine (`PROC_PID_INIT_INO` of the kernel): its numbers are those
/// that programs see.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Connections that were open before are numbered from here on; those accepted since, from 0.
const OPEN_BEFORE: u64 = 1 << 62;

/// Longest time that a server may take to close the connections of clients that have gone.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Without an event for so long, the clients that have gone are served.
const SILENCE: Duration = Duration::from_millis(20);
/// Pause between two looks meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Programs of Go's `crypto/tls`, and one of its scheduler.
const TLS_ENTER: &str = "l7_tls_enter";
const TLS_RETURN: &str = "l7_tls_return";
const GOROUTINE: &str = "l7_goroutine";

/// Programs of system calls, with their tracepoints: exits before entries, so that no call is begun that is not ended.
const SYSCALLS: [(&str, &str); 6] = [
    ("l7_exit_call", "exit_read"),
    ("l7_exit_call", "exit_write"),
    ("l7_enter_close", "enter_close"),
    ("l7_exit_accept", "exit_accept4"),
    ("l7_enter_write", "enter_write"),
    ("l7_enter_read", "enter_read"),
];

const EVENTS: &str = "l7_events";
const PROCESSES: &str = "l7_processes";
const CONNECTIONS: &str = "l7_connections";
const TLS_CALLS: &str = "l7_tls_calls";
/// Maps of the kernel that are empty when a window begins.
const EMPTIED: [&str; 5] = [
    PROCESSES,
    CONNECTIONS,
    "l7_calls",
    TLS_CALLS,
    "l7_goroutines",
];

/// The choice of what is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L7Watch {
    /// System calls on sockets.
    pub sockets: bool,
    /// Go's `crypto/tls`, and where the programs for it run.
    pub tls: Option<Space>,
    /// Which goroutine each thread runs: a uprobe of the kernel.
    pub goroutines: bool,
}

/// The effect of a call on a connection.
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
    /// The process that has it.
    pub process: u32,
    /// True for one of `crypto/tls`; the socket under it is another.
    pub tls: bool,
    /// Distinguishes it from others of the process.
    pub number: u64,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct L7Call<'a> {
    /// On what.
    pub connection: ConnectionId,
    /// The effect on the connection.
    pub act: CallKind,
    /// When it returned (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Who made it, where that is known: always in `crypto/tls`, else with [`L7Watch::goroutines`].
    pub goroutine: Option<u64>,
    /// Bytes that it moved.
    pub length: u64,
    /// The first 512 of them.
    pub payload: &'a [u8],
}

/// The functions of a Go program that are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFunctions {
    /// `crypto/tls.(*Conn).Read`.
    pub read: GoFunction,
    /// The same of `Write`.
    pub write: GoFunction,
    /// The same of `Close`.
    pub close: GoFunction,
    /// `runtime.casgstatus`.
    pub status: GoFunction,
}

/// A function of a Go program, in bytes from the start of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoFunction {
    /// Name in the program.
    pub name: String,
    /// First instruction.
    pub offset: usize,
    /// Length, with what the linker put behind it.
    pub bytes: usize,
    /// Return instructions.
    pub returns: Vec<usize>,
}

/// Counts since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L7Counts {
    /// Calls that are not reported, because the buffer was full or a program was skipped.
    pub lost: u64,
    /// Times that a goroutine began to run, with [`L7Watch::goroutines`].
    pub switches: u64,
}

impl L7Counts {
    fn since(self, before: Self) -> Self {
        L7Counts {
            lost: self.lost - before.lost,
            switches: self.switches - before.switches,
        }
    }
}

/// The programs. Dropping them detaches them.
pub struct L7 {
    watch: L7Watch,
    /// In the processes, and in the kernel: detached in this order, and attached in the other.
    sides: Vec<AgentPrograms>,
    /// The functions of each process, with the cookie of each one's entry program.
    functions: HashMap<u32, Vec<(Function, u64)>>,
    before: L7Counts,
    /// Calls that were taken so far.
    taken: Rc<Cell<u64>>,
}

impl L7 {
    /// Loads them; `take` is given every call, in [`L7::take`].
    pub fn load(watch: L7Watch, take: impl FnMut(&L7Call<'_>) + 'static) -> Result<Self> {
        let take = Rc::new(RefCell::new(take));
        let taken = Rc::new(Cell::new(0));
        let taker = || {
            let (take, taken) = (Rc::clone(&take), Rc::clone(&taken));
            move |record: &[u8]| {
                if let Some(event) = plain::read::<shared::l7_event>(record) {
                    (take.borrow_mut())(&call(&event));
                    taken.set(taken.get() + 1);
                }
            }
        };
        let (device, inode) = namespace().unwrap_or_default();
        let (device, inode) = (device.to_ne_bytes(), inode.to_ne_bytes());
        let constants: &[(&str, &[u8])] =
            &[("namespace_device", &device), ("namespace_inode", &inode)];
        let mut sides = Vec::new();
        if watch.tls == Some(Space::User) {
            let choice = Choice {
                programs: &[TLS_ENTER, TLS_RETURN],
                constants,
            };
            let programs = ProcessPrograms::load("l7", &choice, EVENTS, taker())?;
            sides.push(AgentPrograms::Processes(programs));
        }
        let tls_in_kernel = watch.tls == Some(Space::Kernel);
        if watch.sockets || watch.goroutines || tls_in_kernel {
            let mut open = OpenNamed::open("l7")?;
            open.make_choice(&Choice {
                programs: &[],
                constants,
            })?;
            let of_syscalls = SYSCALLS.map(|(program, _)| (program, true));
            let of_go = [
                (TLS_ENTER, tls_in_kernel),
                (TLS_RETURN, tls_in_kernel),
                (GOROUTINE, watch.goroutines),
            ];
            for (program, _) in of_syscalls.into_iter().chain(of_go).filter(|(_, is)| *is) {
                open.with(program)?;
            }
            let programs = KernelPrograms::load(open, EVENTS, taker())?;
            sides.push(AgentPrograms::Kernel(programs));
        }
        Ok(L7 {
            watch,
            sides,
            functions: HashMap::new(),
            before: L7Counts::default(),
            taken,
        })
    }

    /// Attaches them for these processes; each with the functions of its program, where more than sockets
    /// are watched.
    pub fn attach(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        self.release()?;
        for side in &self.sides {
            let maps = match side {
                AgentPrograms::Kernel(_) => &EMPTIED[..],
                AgentPrograms::Processes(_) => &[TLS_CALLS],
            };
            maps.iter().try_for_each(|map| side.empty(map))?;
        }
        // What is left of the time before is no call of now.
        self.take()?;
        self.before = self.counts()?;
        let attached = self.attach_sides(processes);
        if attached.is_err() {
            self.release()?;
        }
        attached
    }

    fn attach_sides(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        for side in self.sides.iter_mut().rev() {
            match side {
                AgentPrograms::Kernel(programs) => attach(programs, self.watch, processes)?,
                AgentPrograms::Processes(programs) => {
                    for (process, functions) in processes {
                        let functions = match self.functions.entry(*process) {
                            Entry::Occupied(known) => known.into_mut(),
                            Entry::Vacant(none) => none.insert(places::find(*process, functions)?),
                        };
                        programs.attach(*process, &places::in_process(functions))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the calls that are there.
    pub fn take(&mut self) -> Result<()> {
        let mut sides = self.sides.iter_mut().rev();
        sides.try_for_each(AgentPrograms::take)
    }

    /// Detaches them, reads the remaining events, and returns the counts since they were attached. Waits a
    /// while for connections accepted meanwhile to close: requests of a client that has gone are read and
    /// answered all the same.
    pub fn detach(&mut self) -> Result<L7Counts> {
        let begun = Instant::now();
        let mut last = begun;
        while begun.elapsed() < DRAIN_TIME && self.serves(last)? {
            sleep(POLL_INTERVAL);
            let taken = self.taken.get();
            self.take()?;
            if self.taken.get() > taken {
                last = Instant::now();
            }
        }
        self.release()?;
        self.take()?;
        Ok(self.counts()?.since(self.before))
    }

    fn release(&mut self) -> Result<()> {
        // Each of them, also where one can't be.
        let detached: Vec<_> = self.sides.iter_mut().map(AgentPrograms::detach).collect();
        detached.into_iter().collect()
    }

    /// Returns true if clients are still served, as far as the kernel's side knows: it sees when a connection that was
    /// accepted since they were attached closes. Without it, until no call came for a while since `last`.
    fn serves(&self, last: Instant) -> Result<bool> {
        let Some(AgentPrograms::Kernel(programs)) = self.sides.last() else {
            return Ok(last.elapsed() < SILENCE);
        };
        let connections = programs.object.map(CONNECTIONS)?;
        let mut keys = connections.keys();
        Ok(keys.any(|key| {
            let number = connections.lookup(&key, MapFlags::ANY).ok().flatten();
            let number = number.and_then(|number| plain::read::<u64>(&number));
            number.is_some_and(|number| number < OPEN_BEFORE)
        }))
    }

    /// Returns the counts since they were loaded.
    fn counts(&self) -> Result<L7Counts> {
        let mut all = L7Counts::default();
        for side in &self.sides {
            for count in side.counts::<shared::l7_count>("l7_counts")? {
                all.lost += count.lost;
                all.switches += count.switches;
            }
            all.lost += side.missed();
            if let AgentPrograms::Kernel(programs) = side {
                for program in programs.object.programs() {
                    all.lost += RunStats::read(&program)?.recursion_misses;
                }
            }
        }
        Ok(all)
    }
}

/// Attaches the kernel's programs for these processes.
fn attach(
    programs: &mut KernelPrograms,
    watch: L7Watch,
    processes: &[(u32, ServerFunctions)],
) -> Result<()> {
    let object = &programs.object;
    for (process, _) in processes {
        object.put(PROCESSES, process, &1u8)?;
        for descriptor in places::sockets(*process) {
            let number = OPEN_BEFORE + u64::from(descriptor);
            let key = u64::from(*process) << 32 | u64::from(descriptor);
            object.put(CONNECTIONS, &key, &number)?;
        }
    }
    for (program, call) in SYSCALLS {
        let link = tracepoint(&object.program(program)?, &format!("syscalls:sys_{call}"))?;
        programs.links.push(link);
    }
    for (process, functions) in processes {
        let mut uprobes = |program, places: &[(usize, u64)]| -> Result<()> {
            let link: Link = places::uprobes(&object.program(program)?, *process, places)?;
            programs.links.push(link);
            Ok(())
        };
        if watch.goroutines {
            uprobes(GOROUTINE, &[(functions.status.offset, 0)])?;
        }
        if watch.tls == Some(Space::Kernel) {
            let (read, write) = (&functions.read, &functions.write);
            let returns = read.returns.iter().chain(&write.returns);
            let returns: Vec<_> = returns.map(|offset| (*offset, 0)).collect();
            let entries = functions.with_kinds();
            let entries = entries.map(|(function, kind)| (function.offset, kind));
            uprobes(TLS_RETURN, &returns)?;
            uprobes(TLS_ENTER, &entries)?;
        }
    }
    Ok(())
}

impl ServerFunctions {
    /// Those of `crypto/tls`, each with its kind of calls: the cookie of its entry program.
    fn with_kinds(&self) -> [(&GoFunction, u64); 3] {
        [
            (&self.read, shared::l7_kind::L7_READ.into()),
            (&self.write, shared::l7_kind::L7_WRITE.into()),
            (&self.close, shared::l7_kind::L7_CLOSE.into()),
        ]
    }
}

/// The process namespace that this program is in, as device and inode; `None` in the machine's own.
pub(crate) fn namespace() -> Option<(u64, u64)> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    (namespace.st_ino() != FIRST_NAMESPACE).then(|| (namespace.st_dev(), namespace.st_ino()))
}

/// An event as a call.
fn call(event: &shared::l7_event) -> L7Call<'_> {
    L7Call {
        connection: ConnectionId {
            process: event.process,
            tls: event.tls != 0,
            number: event.connection,
        },
        act: match event.kind {
            shared::l7_kind::L7_READ => CallKind::Read,
            shared::l7_kind::L7_WRITE => CallKind::Write,
            _ => CallKind::Close,
        },
        time_ns: event.time_ns,
        goroutine: (event.goroutine != 0).then_some(event.goroutine),
        length: event.length,
        payload: &event.payload[..(event.kept as usize).min(event.payload.len())],
    }
}
