//! A tool that runs, and the answers to its calls.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::{ChildStdin, ChildStdout, Command, ExitStatus},
    rc::Rc,
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys as sys;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    call::{Call, CreateLink, OpenEvent},
    caller::Caller,
    decoy::{self, Decoys},
    error::{Error, Result},
    forward::Forwarder,
    maps::{self, Maps},
    notify::{Listener, Notification, Wait},
    place::{Event, Images, numbers_differ, process_of},
    program::{Captured, Known, unique},
    serve::Server,
    start::Process,
};
use crate::probes::{At, Attached, Place, Probes};

/// Time after which records are handed on, at the latest.
const RECORD_INTERVAL: Duration = Duration::from_millis(1);
/// Time after which it is looked what the tool still holds.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Helpers whose results differ where the process has other numbers (`bpf_get_current_pid_tgid`).
const PROCESS_NUMBERS: u32 = 14;

/// `PERF_FLAG_FD_CLOEXEC`.
const FD_CLOEXEC: u64 = 8;

/// Error of a call for a program that can't run in user space.
const NOT_IN_USER_SPACE: i32 = libc::EOPNOTSUPP;

/// A command that runs, with its uprobe programs in user space. Dropping it detaches them; the command is killed when the
/// thread that started it ends, with this process at the latest.
#[derive(Debug)]
pub struct Tool {
    process: Process,
    listener: Listener,
    callers: HashMap<i32, Rc<Caller>>,
    /// The process whose probes are meant where the tool asks for all processes.
    only: Option<i32>,
    decoys: Decoys,
    /// Events by their numbers.
    events: BTreeMap<u64, Event>,
    captured: Vec<Captured>,
    maps: Maps,
    probes: Probes,
    /// The programs that are there, by the kernel's numbers.
    programs: BTreeSet<u32>,
    running: Vec<Running>,
    forwarders: BTreeMap<u32, Forwarder>,
    server: Server,
    images: Images,
    counts: ToolCounts,
    looked: Instant,
}

/// A program that runs in a process, for as long as the tool holds something.
#[derive(Debug)]
struct Running {
    attached: Attached,
    holder: Holder,
}

/// Something of a tool with which a program ends.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// A link, by its number.
    Link(u32),
    /// An event of a process.
    Event(u64, i32),
}

/// A report of what happens.
#[derive(Debug)]
pub enum ToolEvent<'a> {
    /// A program runs in a process from now on.
    Attached {
        /// The program.
        program: &'a str,
        /// The function.
        function: &'a str,
        /// The point in it.
        at: At,
        /// The process.
        pid: i32,
    },
    /// A call of the tool failed, as a program can't run in user space.
    Refused {
        /// The program.
        program: &'a str,
        /// The reason.
        reason: &'a str,
    },
}

/// Sums of what a tool's programs did in user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolCounts {
    /// Places at which programs ran.
    pub places: u64,
    /// Places that were refused.
    pub refused: u64,
    /// Runs.
    pub hits: u64,
    /// Calls without the program.
    pub missed: u64,
    /// Records that were handed on.
    pub records: u64,
    /// Records that the process had no room for, or that were too long.
    pub lost: u64,
    /// Records that the tool's own buffers had no room for. A perf buffer tells the tool about them.
    pub overflowed: u64,
}

/// Answer to a call.
enum Answer {
    GoOn,
    Done,
    Error(io::Error),
    File(OwnedFd, bool),
}

type Report<'a> = dyn FnMut(ToolEvent<'_>) + 'a;

impl Tool {
    /// Starts a command. `only` is the process that is meant where the command asks for all processes.
    pub fn start(command: Command, only: Option<i32>) -> Result<Self> {
        let decoys = Decoys::new().map_err(Error::system("uprobes of this kernel"))?;
        let probes = Probes::of_others()?;
        let (process, listener) = Process::start(command)?;
        Ok(Tool {
            process,
            listener: Listener::new(listener),
            callers: HashMap::new(),
            only,
            decoys,
            events: BTreeMap::new(),
            captured: Vec::new(),
            maps: Maps::default(),
            probes,
            programs: BTreeSet::new(),
            running: Vec::new(),
            forwarders: BTreeMap::new(),
            server: Server::default(),
            images: Images::default(),
            counts: ToolCounts::default(),
            looked: Instant::now(),
        })
    }

    /// The command's process.
    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// Takes the command's standard input and output, where they are pipes.
    pub fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>) {
        std::mem::take(&mut self.process.pipes)
    }

    /// Asks the command to end, as Ctrl-C does.
    pub fn interrupt(&self) {
        if let Some(pid) = Pid::from_raw(self.process.pid) {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Answers calls and hands records on, for a time. Returns how the command ended, once it has.
    pub fn run(&mut self, time: Duration, report: &mut Report<'_>) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            let interval = if self.forwarders.is_empty() {
                LOOK_INTERVAL
            } else {
                RECORD_INTERVAL
            };
            let state = self.listener.wait(left.min(interval));
            if state == Wait::Call
                && let Some(call) = self.listener.receive()
            {
                self.answer(&call, report);
            }
            self.forward()?;
            if self.looked.elapsed() >= LOOK_INTERVAL {
                self.end_what_is_not_held()?;
                self.probes.release_turns();
                // The process may map other files.
                self.images.forget();
                self.looked = Instant::now();
            }
            if state == Wait::Over || state == Wait::Nothing {
                match self.process.end() {
                    Some(end) => {
                        return end.map(Some).map_err(Error::system("the end of the tool"));
                    }
                    // Its children may have the filter still.
                    None if state == Wait::Over => std::thread::sleep(RECORD_INTERVAL),
                    None => {}
                }
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Detaches all programs. Returns what they did.
    pub fn finish(mut self) -> Result<ToolCounts> {
        for running in std::mem::take(&mut self.running) {
            self.end(running)?;
        }
        self.forward()?;
        let mut counts = self.counts;
        let without_turn = self.probes.without_turn().min(counts.hits);
        counts.hits -= without_turn;
        counts.missed += without_turn;
        for (id, forwarder) in &self.forwarders {
            let map = self.probes.map_with_id(*id);
            counts.lost += map.map_or(Ok(0), |map| map.dropped())? + forwarder.too_long;
            counts.overflowed += forwarder.refused();
        }
        Ok(counts)
    }

    fn answer(&mut self, notification: &Notification, report: &mut Report<'_>) {
        let answer = match self.read(notification) {
            Some((caller, call)) => self.decide(&caller, call, report),
            None => Answer::GoOn,
        };
        match answer {
            Answer::GoOn => self.listener.go_on(notification),
            Answer::Done => self.listener.answer(notification, Ok(0)),
            Answer::Error(error) => self.listener.answer(notification, Err(error)),
            Answer::File(file, closes) => self.listener.give(notification, file.as_fd(), closes),
        }
    }

    /// The call, and the process that makes it. `None` where it can't be read: the kernel can't either, then.
    fn read(&mut self, notification: &Notification) -> Option<(Rc<Caller>, Call)> {
        let thread = notification.thread;
        let known = self
            .callers
            .get(&thread)
            .filter(|caller| caller.has(thread));
        if let Some(caller) = known.cloned()
            && let Ok(call) = Call::read(notification, &caller)
        {
            return Some((caller, call));
        }
        // It is new, or runs another program now.
        let caller = Rc::new(Caller::of_thread(thread).ok()?);
        let call = Call::read(notification, &caller).ok()?;
        self.callers.insert(thread, Rc::clone(&caller));
        self.listener
            .is_waiting(notification)
            .then_some((caller, call))
    }

    fn decide(&mut self, caller: &Caller, call: Call, report: &mut Report<'_>) -> Answer {
        match call {
            Call::CreateMap(attributes) => maps::create_mappable(&attributes, caller)
                .map_or(Answer::GoOn, |map| Answer::File(map, true)),
            Call::LoadProgram(program) => {
                let captured = Captured::new(&program, caller, &mut self.maps);
                self.captured.push(captured);
                Answer::GoOn
            }
            Call::OpenEvent(call) => self.open_event(caller, &call, report),
            Call::SetProgram { event, program } => {
                let Ok(event) = caller.file(event) else {
                    return Answer::GoOn;
                };
                self.attach(caller, event, program, None, report)
            }
            Call::CreateLink(link) if link.kind == sys::BPF_PERF_EVENT => {
                let Ok(event) = caller.file(link.target) else {
                    return Answer::GoOn;
                };
                self.attach(caller, event, link.program, Some(link), report)
            }
            Call::CreateLink(CreateLink { program, .. }) | Call::Attach { program } => {
                self.attach_in_kernel(caller, program, report)
            }
            Call::Element(call) => self.with_map(caller, call.map, |server, map| {
                server.element(&call, caller, map)
            }),
            Call::Batch(call) => self.with_map(caller, call.map, |server, map| {
                server.batch(&call, caller, map)
            }),
            Call::Other => Answer::GoOn,
        }
    }

    /// Answers a command for a map, if user space has its contents.
    fn with_map(
        &mut self,
        caller: &Caller,
        file: i32,
        answer: impl FnOnce(&mut Server, &crate::probes::Map<'_>) -> io::Result<i64>,
    ) -> Answer {
        if self.maps.taken.is_empty() {
            return Answer::GoOn;
        }
        let Some((id, _)) = self.maps.find(caller, file) else {
            return Answer::GoOn;
        };
        if !self.maps.taken.get(&id).is_some_and(maps::is_separate) {
            return Answer::GoOn;
        }
        let Some(map) = self.probes.map_with_id(id) else {
            return Answer::GoOn;
        };
        match answer(&mut self.server, &map) {
            Ok(_) => Answer::Done,
            Err(error) => Answer::Error(error),
        }
    }

    fn open_event(&mut self, caller: &Caller, call: &OpenEvent, report: &mut Report<'_>) -> Answer {
        let (Some(place), Ok(path)) = (self.decoys.place(call), call.path(caller)) else {
            return Answer::GoOn;
        };
        // The kernel knows what is wrong with a file that isn't there. And a tool may probe itself: bpftrace's BEGIN and END.
        if !path.exists() || caller.runs(&path) {
            return Answer::GoOn;
        }
        let pid = match (call.pid, self.only) {
            (1.., _) => process_of(call.pid),
            (_, Some(only)) => only,
            _ => {
                let reason = format!(
                    "it asks for all processes that execute {}\n  Name one: --only PID, or the tool's own option",
                    path.display()
                );
                return self.refuse("a uprobe", &reason, report);
            }
        };
        match self.decoys.open(call) {
            Ok((event, id)) => {
                self.events.insert(id, Event { place, path, pid });
                let closes = call.flags & FD_CLOEXEC != 0;
                Answer::File(event, closes)
            }
            Err(error) => Answer::Error(error),
        }
    }

    /// Has a program run in a process, and the event run it for the kernel, which never happens.
    fn attach(
        &mut self,
        caller: &Caller,
        event: OwnedFd,
        program: i32,
        link: Option<CreateLink>,
        report: &mut Report<'_>,
    ) -> Answer {
        let id = decoy::id(&event);
        let known = id.and_then(|id| Some((id, self.events.get(&id)?.clone())));
        let Some((id, place)) = known else {
            return self.attach_in_kernel(caller, program, report);
        };
        let Ok(program) = caller.file(program).and_then(Known::from_fd) else {
            return Answer::GoOn;
        };
        let Ok(for_kernel) = program.fd.try_clone() else {
            return Answer::GoOn;
        };
        let name = program.name.clone();
        let cookie = link.map_or(0, |link| link.cookie);
        let attached = match self.attach_to(&place, program, cookie, report) {
            Ok(attached) => attached,
            Err(reason) => return self.refuse(&name, &reason, report),
        };
        let (holder, answer) = match link {
            None => match decoy::set_program(&event, for_kernel.as_fd()) {
                Ok(()) => (Some(Holder::Event(id, caller.pid)), Answer::Done),
                Err(error) => (None, Answer::Error(error)),
            },
            Some(_) => match decoy::link(&event, for_kernel.as_fd(), cookie) {
                Ok((link, id)) => (Some(Holder::Link(id)), Answer::File(link, true)),
                Err(error) => (None, Answer::Error(error)),
            },
        };
        match holder {
            Some(holder) => self.running.push(Running { attached, holder }),
            None => drop(self.probes.detach(attached)),
        }
        answer
    }

    /// Has a program run at a place; the reason if it can't.
    fn attach_to(
        &mut self,
        event: &Event,
        program: Known,
        cookie: u64,
        report: &mut Report<'_>,
    ) -> Result<Attached, String> {
        let pid = event.pid;
        let captured = self.captured.iter().position(|one| one.is(&program));
        let captured = captured.ok_or(
            "its instructions are not known: another process has loaded it, or the kernel changed it",
        )?;
        let captured = &self.captured[captured];
        if let Some(reason) = captured.unknown {
            return Err(reason.to_owned());
        }
        if let Some(map) = self.maps.conflict(&captured.maps) {
            return Err(format!("a program in the kernel uses its map {map} too"));
        }
        let calls = |helper| {
            captured
                .instructions
                .iter()
                .any(|one| one.helper() == Some(helper))
        };
        if calls(PROCESS_NUMBERS) && numbers_differ(pid) {
            return Err(format!(
                "it asks for the numbers of processes, which are others in the PID namespace of process {pid}"
            ));
        }
        for id in &captured.maps {
            let Some(map) = self.maps.take(*id) else {
                continue;
            };
            if map.has_records() {
                let forwarder = Forwarder::new(&map).map_err(|error| error.to_string())?;
                self.forwarders.insert(*id, forwarder);
            }
            let entries = maps::entries(&map);
            self.probes
                .add_map(map)
                .map_err(|error| error.to_string())?;
            let map = self.probes.map_with_id(*id);
            for (key, value) in entries {
                let copied = map.map_or(Ok(()), |map| map.set(&key, &value));
                copied.map_err(|error| error.to_string())?;
            }
        }
        let found = event
            .find(&mut self.images)
            .map_err(|error| error.to_string())?;
        let name = program.name.clone();
        let unique = unique(&name, program.id);
        if self.programs.insert(program.id) {
            self.probes.add_program(program.with(captured));
        }
        let place = Place {
            program: &unique,
            function: &found.function,
            at: found.at,
            cookie,
        };
        let attached = self
            .probes
            .attach(pid, &[place])
            .map_err(|error| error.to_string())?;
        self.counts.places += 1;
        report(ToolEvent::Attached {
            program: &name,
            function: &found.function.name,
            at: found.at,
            pid,
        });
        Ok(attached)
    }

    /// A program that the kernel is about to run.
    fn attach_in_kernel(
        &mut self,
        caller: &Caller,
        program: i32,
        report: &mut Report<'_>,
    ) -> Answer {
        let Ok(program) = caller.file(program).and_then(Known::from_fd) else {
            return Answer::GoOn;
        };
        let captured = self.captured.iter().find(|one| one.is(&program));
        let maps = captured.map_or(&[][..], |captured| &captured.maps);
        match self.maps.use_in_kernel(maps) {
            None => Answer::GoOn,
            Some(map) => {
                let map = self.probes.map_with_id(map);
                let reason = format!(
                    "it runs in the kernel, and a program in user space uses its map {} too",
                    map.map_or("", |map| map.loaded().name.as_str())
                );
                self.refuse(&program.name, &reason, report)
            }
        }
    }

    fn refuse(&mut self, program: &str, reason: &str, report: &mut Report<'_>) -> Answer {
        self.counts.refused += 1;
        report(ToolEvent::Refused { program, reason });
        Answer::Error(io::Error::from_raw_os_error(NOT_IN_USER_SPACE))
    }

    /// Hands records on.
    fn forward(&mut self) -> Result<()> {
        if self.forwarders.is_empty() {
            return Ok(());
        }
        let (forwarders, records) = (&mut self.forwarders, &mut self.counts.records);
        let mut done = Ok(());
        self.probes.consume_all(|map, record| {
            if let (Some(forwarder), true) = (forwarders.get_mut(&map), done.is_ok()) {
                *records += 1;
                done = forwarder.push(record);
            }
        })?;
        done?;
        forwarders.values_mut().try_for_each(Forwarder::flush)
    }

    /// Detaches programs that the tool has let go.
    fn end_what_is_not_held(&mut self) -> Result<()> {
        let mut events: HashMap<i32, BTreeSet<u64>> = HashMap::new();
        let callers = &self.callers;
        let mut is_held = |holder: &Holder| match *holder {
            Holder::Link(id) => decoy::is_there(id),
            Holder::Event(id, pid) => {
                let held = events.entry(pid).or_insert_with(|| {
                    let caller = callers.values().find(|caller| caller.pid == pid);
                    let files = caller.map(|caller| caller.files("anon_inode:[perf_event]"));
                    files.iter().flatten().filter_map(decoy::id).collect()
                });
                held.contains(&id)
            }
        };
        let running = std::mem::take(&mut self.running);
        let (held, left): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|one| is_held(&one.holder));
        self.running = held;
        left.into_iter().try_for_each(|one| self.end(one))
    }

    fn end(&mut self, running: Running) -> Result<()> {
        for counts in self.probes.detach_counted(running.attached)? {
            self.counts.hits += counts.hits;
            self.counts.missed += counts.missed;
        }
        Ok(())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        for running in std::mem::take(&mut self.running) {
            // A process that is gone has nothing to restore.
            let _ = self.probes.detach(running.attached);
        }
    }
}
