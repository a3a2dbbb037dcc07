//! A tool that runs, and the answers to its calls.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::{ChildStdin, ChildStdout, Command, ExitStatus},
    rc::Rc,
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys as sys;
use rustix::process::{Pid, Signal, kill_process};

use super::{
    call::{Call, CreateLink},
    caller::Caller,
    decoy::Decoys,
    error::{Error, Result},
    forward::Forwarder,
    maps::{self, Maps},
    notify::{Listener, Notification, Wait},
    place::{Images, Spot, Whose},
    processes::Following,
    program::Captured,
    running::Running,
    serve::Server,
    start::Process,
    tracefs,
};
use crate::probes::{At, Probes};

/// Time after which records are handed on. It doubles with each look that finds none, so many times.
const SHORT_INTERVAL: Duration = Duration::from_millis(1);
const QUIET_DOUBLINGS: u32 = 4;
/// Time after which it is looked what the tool still holds.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A command that runs, with its uprobe programs in user space. Dropping it detaches them; the command is killed when the
/// thread that started it ends, with this process at the latest.
#[derive(Debug)]
pub struct Tool {
    pub(super) process: Process,
    listener: Listener,
    pub(super) callers: HashMap<i32, Rc<Caller>>,
    /// The process whose probes are meant where the tool asks for all processes.
    pub(super) only: Option<i32>,
    pub(super) decoys: Decoys,
    /// The places of events, by their numbers.
    pub(super) events: BTreeMap<u64, (Spot, Whose)>,
    pub(super) captured: Vec<Captured>,
    pub(super) maps: Maps,
    pub(super) probes: Probes,
    pub(super) running: Vec<Running>,
    /// Processes that start a file that is probed in all of them.
    pub(super) starts: Vec<Following>,
    pub(super) forwarders: BTreeMap<u32, Forwarder>,
    server: Server,
    pub(super) images: Images,
    pub(super) counts: ToolCounts,
    looked: Instant,
    /// The first error of a process that could not be restored.
    pub(super) failed: Option<Error>,
    /// The end of the command, if it has ended.
    ended: Option<io::Result<ExitStatus>>,
    /// Looks without a record since the last one.
    quiet: u32,
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
    /// A process of several is not probed.
    LeftOut {
        /// The process.
        pid: i32,
        /// The reason.
        reason: &'a str,
    },
    /// A call of the tool failed, as a program can't run in user space.
    Refused {
        /// The program.
        program: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// A call of the tool failed, by which it would probe in the kernel, past the supervisor.
    CallRefused {
        /// The system call.
        call: &'a str,
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
    /// Calls that were refused, by which the tool would have probed in the kernel.
    pub calls_refused: u64,
    /// Processes, of several that were meant, that could not be probed, each as often as it was tried.
    pub left_out: u64,
    /// Runs.
    pub hits: u64,
    /// Calls without the program.
    pub missed: u64,
    /// Records that the tool's own buffers took.
    pub records: u64,
    /// Records that the process had no room for, or that were too long.
    pub lost: u64,
    /// Records that the tool's own buffers did not take: they had no room, of which a perf buffer tells the tool, or were not
    /// open yet.
    pub overflowed: u64,
}

/// Answer to a call.
pub(super) enum Answer {
    GoOn,
    Done,
    Error(io::Error),
    File(OwnedFd, bool),
}

pub(super) type Report<'a> = dyn FnMut(ToolEvent<'_>) + 'a;

impl Tool {
    /// Starts a command. `only` is the process that is meant where the command asks for all processes.
    pub fn start(command: Command, only: Option<i32>) -> Result<Self> {
        let decoys = Decoys::new().map_err(Error::system("uprobes of this kernel"))?;
        let probes = Probes::for_tool()?;
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
            running: Vec::new(),
            starts: Vec::new(),
            forwarders: BTreeMap::new(),
            server: Server::default(),
            images: Images::default(),
            counts: ToolCounts::default(),
            looked: Instant::now(),
            failed: None,
            ended: None,
            quiet: 0,
        })
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

    /// Answers calls and hands records on, for a time. Returns how the command ended, once it and all that it started have.
    pub fn run(&mut self, time: Duration, report: &mut Report<'_>) -> Result<Option<ExitStatus>> {
        let begun = Instant::now();
        loop {
            let left = time.saturating_sub(begun.elapsed());
            let state = self.wait(left);
            if state == Wait::Call
                && let Some(call) = self.listener.receive()
            {
                self.answer(&call, report);
            }
            if self.forward()? {
                self.quiet = 0;
            } else {
                self.quiet = self.quiet.saturating_add(1);
            }
            self.attach_to_started(report)?;
            if self.looked.elapsed() >= LOOK_INTERVAL {
                self.end_what_is_over();
                self.probes.release_turns();
                self.probes.reuse_children();
                self.callers.retain(|_, caller| caller.is_there());
                // The process may map other files.
                self.images.forget();
                self.looked = Instant::now();
            }
            if self.ended.is_none() {
                self.ended = self.process.end();
            }
            match (state, self.ended.take()) {
                (Wait::Over, Some(end)) => {
                    return end.map(Some).map_err(Error::system("the end of the tool"));
                }
                // What it has started has the filter still.
                (_, ended) => self.ended = ended,
            }
            if state == Wait::Over {
                std::thread::sleep(SHORT_INTERVAL);
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// Waits for a call, or for a process that starts, until it is time to look for records, at most for so long.
    fn wait(&self, left: Duration) -> Wait {
        let interval = if self.forwarders.is_empty() {
            LOOK_INTERVAL
        } else {
            SHORT_INTERVAL * (1 << self.quiet.min(QUIET_DOUBLINGS))
        };
        let starts = self.starts.iter().map(Following::as_fd);
        self.listener.wait(left.min(interval), starts)
    }

    /// Detaches all programs. Returns what they did, and the first error of a process that could not be restored: when this
    /// process has ended, another one does that.
    pub fn finish(mut self) -> (ToolCounts, Result<()>) {
        let running = std::mem::take(&mut self.running);
        running.into_iter().for_each(|one| self.end(one));
        let forwarded = self.forward().map(drop);
        let mut counts = self.counts;
        let without_turn = self.probes.without_turn().min(counts.hits);
        counts.hits -= without_turn;
        counts.missed += without_turn;
        for (id, forwarder) in &self.forwarders {
            let map = self.probes.map_with_id(*id);
            let dropped = map.and_then(|map| map.dropped().ok()).unwrap_or(0);
            counts.lost += dropped + forwarder.too_long;
            counts.overflowed += forwarder.refused();
        }
        counts.records -= counts.overflowed;
        let failed = self.failed.take();
        (counts, failed.map_or(forwarded, Err))
    }

    fn answer(&mut self, notification: &Notification, report: &mut Report<'_>) {
        let answer = match self.read(notification) {
            Ok((caller, call)) => self.decide(&caller, call, report),
            // The kernel may read what this process can't, and would go on unseen.
            Err(error) => Answer::Error(error),
        };
        if std::env::var_os("HARD_DEBUG").is_some() && matches!(answer, Answer::GoOn) {
            let event = Caller::from_thread(notification.thread)
                .and_then(|caller| Call::read(notification, &caller));
            match event {
                Ok(Call::OpenEvent(event)) if event.attributes.type_ > 5 => {
                    let caller = Caller::from_thread(notification.thread).unwrap();
                    eprintln!(
                        "GOON event type {} size {} path {:?} pid {} cpu {} flags {:x} config {:x} offset {:x} attr {:x}",
                        event.attributes.type_,
                        event.attributes.size,
                        event.path(&caller),
                        event.pid,
                        event.cpu,
                        event.flags,
                        event.attributes.config,
                        event.offset(),
                        notification.arguments[0]
                    );
                }
                Ok(Call::CreateLinks(links)) => eprintln!("GOON links {links:?}"),
                _ => {}
            }
        }
        match answer {
            Answer::GoOn => self.listener.go_on(notification),
            Answer::Done => self.listener.answer(notification, Ok(0)),
            Answer::Error(error) => self.listener.answer(notification, Err(error)),
            Answer::File(file, closes) => self.listener.give(notification, file.as_fd(), closes),
        }
    }

    /// The call, and the process that makes it.
    fn read(&mut self, notification: &Notification) -> io::Result<(Rc<Caller>, Call)> {
        let thread = notification.thread;
        let of_thread = |caller: &&Rc<Caller>| caller.has(thread);
        let known = self.callers.get(&thread).filter(of_thread);
        // Threads of a process have the same memory and files.
        let known = known.or_else(|| self.callers.values().find(of_thread));
        if let Some(caller) = known.cloned()
            && let Ok(call) = Call::read(notification, &caller)
        {
            self.callers.insert(thread, Rc::clone(&caller));
            return Ok((caller, call));
        }
        // It is new, or runs another program now.
        let caller = Rc::new(Caller::from_thread(thread)?);
        let call = Call::read(notification, &caller)?;
        self.callers.insert(thread, Rc::clone(&caller));
        let is_waiting = self.listener.is_waiting(notification);
        is_waiting
            .then_some((caller, call))
            .ok_or_else(|| io::ErrorKind::NotFound.into())
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
            Call::Mount { kind } if tracefs::has_events(&kind) => self.refuse_mount(&kind, report),
            Call::SetProgram { event, program } => match caller.file(event) {
                Ok(event) => self.attach(caller, event, program, None, report),
                Err(error) => Answer::Error(error),
            },
            Call::CreateLink(link) if link.kind == sys::BPF_PERF_EVENT => {
                match caller.file(link.target) {
                    Ok(event) => self.attach(caller, event, link.program, Some(link), report),
                    Err(error) => Answer::Error(error),
                }
            }
            Call::CreateLinks(links) => self.attach_links(caller, &links, report),
            Call::CreateLink(CreateLink { program, .. }) | Call::Attach { program } => {
                self.run_in_kernel(caller, program, false, report)
            }
            Call::Run { program } => self.run_in_kernel(caller, program, true, report),
            Call::Element(call) => self.with_map(caller, call.map, |server, map| {
                server.element(&call, caller, map)
            }),
            Call::Batch(call) => self.with_map(caller, call.map, |server, map| {
                server.batch(&call, caller, map)
            }),
            Call::Mount { .. } | Call::Other => Answer::GoOn,
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
        let Some(id) = self.maps.find(caller, file) else {
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

    /// Hands records on. Returns whether there were some.
    fn forward(&mut self) -> Result<bool> {
        if self.forwarders.is_empty() {
            return Ok(false);
        }
        let before = self.counts.records;
        let (forwarders, records) = (&mut self.forwarders, &mut self.counts.records);
        let mut done = Ok(());
        self.probes.consume_all(|map, record| {
            if let (Some(forwarder), true) = (forwarders.get_mut(&map), done.is_ok()) {
                match forwarder.push(record) {
                    Ok(taken) => *records += u64::from(taken),
                    Err(error) => done = Err(error),
                }
            }
        })?;
        done?;
        forwarders.values_mut().try_for_each(Forwarder::flush)?;
        Ok(self.counts.records > before)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        for running in std::mem::take(&mut self.running) {
            self.end(running);
        }
    }
}
