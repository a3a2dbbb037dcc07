//! A tool's programs that run in processes: attached with what the tool holds for them, and ended with it.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
};

use libbpf_rs::libbpf_sys::PERF_TYPE_TRACEPOINT;

use super::{
    call::{CreateLink, CreateLinks, OpenEvent},
    caller::Caller,
    decoy::{self, EventPlace},
    error::Result,
    forward::Forwarder,
    maps,
    place::{Spot, Whose, numbers_differ, process_of},
    program::{Captured, Known, unique},
    tool::{Answer, Report, Tool, ToolEvent},
    tracefs,
};
use crate::probes::{Attached, Place};

/// A helper whose result differs where the process has other numbers: `bpf_get_current_pid_tgid`.
const PROCESS_NUMBERS: u32 = 14;

/// `PERF_FLAG_FD_CLOEXEC`, and `PERF_FLAG_PID_CGROUP`, with which the process's number is a file.
const FD_CLOEXEC: u64 = 8;
const PID_CGROUP: u64 = 4;

/// Error of a call for a program that can't run in user space.
const NOT_IN_USER_SPACE: i32 = libc::EOPNOTSUPP;

/// A program that runs at places of processes, for as long as the tool holds something.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) program: Ready,
    pub(super) whose: Whose,
    /// The places, and the cookie at each.
    pub(super) spots: Vec<(Spot, u64)>,
    pub(super) attached: Vec<Attached>,
    holder: Holder,
}

/// A program that the probes have.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    /// The name, and the one that no other has.
    pub(super) name: String,
    pub(super) unique: String,
    /// True if it asks for numbers of processes.
    asks_for_numbers: bool,
}

/// Something of a tool with which a program ends.
#[derive(Clone, Copy, Debug)]
enum Holder {
    /// A link, by its number.
    Link(u32),
    /// An event of a process.
    Event(u64, i32),
}

impl Tool {
    pub(super) fn open_event(
        &mut self,
        caller: &Caller,
        call: &OpenEvent,
        report: &mut Report<'_>,
    ) -> Answer {
        if call.attributes.type_ == PERF_TYPE_TRACEPOINT
            && let Some(reason) = uprobe_of_tracefs(call.attributes.config)
        {
            return self.refuse_call("perf_event_open", &reason, report);
        }
        let Some(place) = self.decoys.place(call) else {
            return Answer::GoOn;
        };
        if call.flags & PID_CGROUP != 0 {
            let reason = "a uprobe of the processes of a control group can't run in user space";
            return self.refuse_call("perf_event_open", reason, report);
        }
        let path = match call.path(caller) {
            Ok(path) => path,
            Err(error) => return Answer::Error(error),
        };
        // The kernel knows what is wrong with what is no file.
        let whose = match call.pid {
            0 => Whose::One(caller.pid),
            thread => self.whose(thread),
        };
        if !path.is_file() || caller.probes_itself(&path, whose) {
            return Answer::GoOn;
        }
        match self.decoys.open(call) {
            Ok((event, id)) => {
                self.events.insert(id, (Spot { place, path }, whose));
                Answer::File(event, call.flags & FD_CLOEXEC != 0)
            }
            Err(error) => Answer::Error(error),
        }
    }

    /// Processes that a tool means by a number.
    fn whose(&self, thread: i32) -> Whose {
        match (thread, self.only) {
            (1.., _) => Whose::One(process_of(thread)),
            (_, Some(only)) => Whose::One(process_of(only)),
            _ => Whose::All,
        }
    }

    /// Has a program run in processes, and the event run it for the kernel, which never happens.
    pub(super) fn attach(
        &mut self,
        caller: &Caller,
        event: OwnedFd,
        program: i32,
        link: Option<CreateLink>,
        report: &mut Report<'_>,
    ) -> Answer {
        let Some(id) = decoy::id(&event) else {
            return Answer::GoOn;
        };
        let Some((spot, whose)) = self.events.get(&id).cloned() else {
            return self.run_in_kernel(caller, program, false, report);
        };
        let cookie = link.map_or(0, |link| link.cookie);
        let spots = vec![(spot, cookie)];
        let pid = caller.pid;
        self.hold(
            caller,
            program,
            whose,
            spots,
            report,
            |_, program| match link {
                None => {
                    decoy::set_program(&event, program.as_fd())?;
                    Ok((Holder::Event(id, pid), Answer::Done))
                }
                Some(_) => {
                    let (link, id) = decoy::link(&event, program.as_fd(), cookie)?;
                    Ok((Holder::Link(id), Answer::File(link, true)))
                }
            },
        )
    }

    /// The same at several places of a file.
    pub(super) fn attach_links(
        &mut self,
        caller: &Caller,
        call: &CreateLinks,
        report: &mut Report<'_>,
    ) -> Answer {
        let whose = self.whose(call.pid.cast_signed());
        // Loaders ask for a link to a folder: the kernel's error shows what it supports.
        if !call.path.is_file() {
            return Answer::GoOn;
        }
        if caller.probes_itself(&call.path, whose) {
            return self.run_in_kernel(caller, call.program, false, report);
        }
        if call.is_session {
            let reason = "it runs at the entry and the return of a call, as a session";
            let program = caller.file(call.program).and_then(Known::from_fd);
            let name = program.map(|program| program.name).unwrap_or_default();
            return self.refuse(&name, reason, report);
        }
        let is_return = call.flags & libbpf_rs::libbpf_sys::BPF_F_UPROBE_MULTI_RETURN != 0;
        let spots = call.spots.iter().map(|spot| {
            let place = EventPlace {
                offset: spot.offset,
                is_return,
                semaphore: spot.semaphore,
            };
            let path = call.path.clone();
            (Spot { place, path }, spot.cookie)
        });
        let spots = spots.collect();
        self.hold(
            caller,
            call.program,
            whose,
            spots,
            report,
            |tool, program| {
                let (link, id) = tool.decoys.link(call, program.as_fd())?;
                Ok((Holder::Link(id), Answer::File(link, true)))
            },
        )
    }

    /// Has a program run at places, and `hold` make what the tool holds for it.
    fn hold(
        &mut self,
        caller: &Caller,
        program: i32,
        whose: Whose,
        spots: Vec<(Spot, u64)>,
        report: &mut Report<'_>,
        hold: impl FnOnce(&mut Tool, &OwnedFd) -> io::Result<(Holder, Answer)>,
    ) -> Answer {
        let program = caller.file(program).and_then(Known::from_fd);
        let both = program.and_then(|program| Ok((program.fd.try_clone()?, program)));
        let (for_kernel, program) = match both {
            Ok(both) => both,
            Err(error) => return Answer::Error(error),
        };
        let name = program.name.clone();
        // Here, and not where the event is opened: tools that are refused one write to tracefs, and probe in the kernel.
        let followed = match (whose, spots.first()) {
            (Whose::All, Some((spot, _))) => self.follow(&spot.path),
            _ => Ok(()),
        };
        let prepared = followed.and_then(|()| self.prepare(program));
        let attached = prepared.and_then(|program| {
            let attached = match whose {
                Whose::One(pid) => vec![self.attach_one(pid, &program, &spots, report)?],
                Whose::All => self.attach_all(caller, &program, &spots, report),
            };
            Ok((program, attached))
        });
        let (program, attached) = match attached {
            Ok(attached) => attached,
            Err(reason) => return self.refuse(&name, &reason, report),
        };
        match hold(self, &for_kernel) {
            Ok((holder, answer)) => {
                self.counts.places += spots.len() as u64;
                self.running.push(Running {
                    program,
                    whose,
                    spots,
                    attached,
                    holder,
                });
                answer
            }
            Err(error) => {
                for attached in attached {
                    let _ = self.probes.detach(attached);
                }
                Answer::Error(error)
            }
        }
    }

    /// Gives the probes a program, with its maps; the reason if it can't run in user space.
    fn prepare(&mut self, program: Known) -> Result<Ready, String> {
        let words = |error: crate::probes::Error| error.to_string();
        let captured = Captured::find(&self.captured, &program);
        let captured = captured.ok_or(
            "its instructions are not known: another process has loaded it, or the kernel changed it",
        )?;
        if let Some(reason) = captured.unknown {
            return Err(reason.to_owned());
        }
        if let Some(map) = self.maps.conflict(&captured.maps) {
            return Err(format!("a program in the kernel uses its map {map} too"));
        }
        for id in &captured.maps {
            let taken = self.maps.take(*id);
            let Some(map) =
                taken.map_err(|error| format!("its map {id} can't be opened: {error}"))?
            else {
                continue;
            };
            if map.has_records() {
                let forwarder = Forwarder::new(&map).map_err(|error| error.to_string())?;
                self.forwarders.insert(*id, forwarder);
            }
            let entries = maps::entries(&map);
            self.probes.add_map(map).map_err(words)?;
            let map = self.probes.map_with_id(*id);
            for (key, value) in entries {
                let copied = map.map_or(Ok(()), |map| map.set(&key, &value));
                copied.map_err(words)?;
            }
        }
        let mut helpers = captured.instructions.iter().map(|one| one.helper());
        let asks_for_numbers = helpers.any(|helper| helper == Some(PROCESS_NUMBERS));
        let name = program.name.clone();
        let unique = unique(&name, program.id);
        let mut there = self.probes.object().programs().iter();
        if !there.any(|one| one.name == unique) {
            let map = |id| Some(self.probes.map_with_id(id)?.loaded().fd().as_raw_fd());
            let program = program.with(captured, map);
            let program = program.ok_or("one of its maps has no form in user space")?;
            self.probes.add_program(program);
        }
        Ok(Ready {
            name,
            unique,
            asks_for_numbers,
        })
    }

    /// Has a program run at places of one process; the reason if it can't.
    pub(super) fn attach_one(
        &mut self,
        pid: i32,
        program: &Ready,
        spots: &[(Spot, u64)],
        report: &mut Report<'_>,
    ) -> Result<Attached, String> {
        if program.asks_for_numbers && numbers_differ(pid) {
            return Err(format!(
                "it asks for the numbers of processes, which are others in the PID namespace of process {pid}"
            ));
        }
        let found = spots
            .iter()
            .map(|(spot, _)| spot.find(pid, &mut self.images));
        let found: Vec<_> = found
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let places = found.iter().zip(spots).map(|(found, (_, cookie))| Place {
            program: &program.unique,
            function: &found.function,
            at: found.at,
            cookie: *cookie,
        });
        let places: Vec<Place<'_>> = places.collect();
        let attached = self
            .probes
            .attach(pid, &places)
            .map_err(|error| error.to_string())?;
        for found in &found {
            report(ToolEvent::Attached {
                program: &program.name,
                function: &found.function.name,
                at: found.at,
                pid,
            });
        }
        Ok(attached)
    }

    /// A program that the kernel is about to run: from now on, or `once`, as bpftrace's BEGIN and END. What a single run writes
    /// to maps before user space has them is taken over.
    pub(super) fn run_in_kernel(
        &mut self,
        caller: &Caller,
        program: i32,
        once: bool,
        report: &mut Report<'_>,
    ) -> Answer {
        let program = match caller.file(program).and_then(Known::from_fd) {
            Ok(program) => program,
            Err(error) => return Answer::Error(error),
        };
        let maps = Captured::find(&self.captured, &program).map_or(&[][..], |one| &one.maps);
        let conflict = if once {
            self.maps.in_user_space(maps)
        } else {
            self.maps.use_in_kernel(maps)
        };
        match conflict {
            None => Answer::GoOn,
            Some(map) => self.refuse_map(&program.name, map, report),
        }
    }

    fn refuse_map(&mut self, program: &str, map: u32, report: &mut Report<'_>) -> Answer {
        let map = self.probes.map_with_id(map);
        let reason = format!(
            "it runs in the kernel, and a program in user space uses its map {} too",
            map.map_or("", |map| map.loaded().name.as_str())
        );
        self.refuse(program, &reason, report)
    }

    fn refuse(&mut self, program: &str, reason: &str, report: &mut Report<'_>) -> Answer {
        self.counts.refused += 1;
        report(ToolEvent::Refused { program, reason });
        Answer::Error(io::Error::from_raw_os_error(NOT_IN_USER_SPACE))
    }

    /// tracefs that a tool mounts could be written.
    pub(super) fn refuse_mount(&mut self, kind: &[u8], report: &mut Report<'_>) -> Answer {
        let kind = String::from_utf8_lossy(kind);
        let reason = format!(
            "the tool could write uprobes of the kernel to a {kind} that it mounts itself\n  \
             Mount it before you start the tool: mount -t {kind} {kind} FOLDER"
        );
        self.refuse_call("mount", &reason, report)
    }

    fn refuse_call(&mut self, call: &str, reason: &str, report: &mut Report<'_>) -> Answer {
        self.counts.calls_refused += 1;
        report(ToolEvent::CallRefused { call, reason });
        Answer::Error(io::Error::from_raw_os_error(NOT_IN_USER_SPACE))
    }

    /// Detaches programs that the tool has let go, and those of processes that ended.
    pub(super) fn end_what_is_over(&mut self) {
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
        left.into_iter().for_each(|one| self.end(one));
        for index in 0..self.running.len() {
            if self.running[index].whose == Whose::All {
                let attached = std::mem::take(&mut self.running[index].attached);
                let (over, there): (Vec<_>, Vec<_>) = attached
                    .into_iter()
                    .partition(|one| self.probes.is_over(one));
                self.running[index].attached = there;
                over.into_iter().for_each(|one| self.detach(one));
            }
        }
    }

    /// Detaches a program from all processes, and counts what it did.
    pub(super) fn end(&mut self, running: Running) {
        running
            .attached
            .into_iter()
            .for_each(|one| self.detach(one));
    }

    /// An error of one process keeps no other from being restored; what its programs did until then is counted.
    fn detach(&mut self, attached: Attached) {
        let before = self.probes.counts(&attached);
        let all = self
            .probes
            .detach_counted(attached)
            .unwrap_or_else(|error| {
                self.failed.get_or_insert(error.into());
                before
            });
        for counts in all {
            self.counts.hits += counts.hits;
            self.counts.missed += counts.missed;
        }
    }
}

/// The reason for which the tracepoint of this number can't be opened: it may be a uprobe.
fn uprobe_of_tracefs(number: u64) -> Option<String> {
    match tracefs::uprobe(number) {
        Ok(None) => None,
        Ok(Some(name)) => Some(format!(
            "{name} is a uprobe of the kernel's, which tracefs has"
        )),
        Err(error) => Some(format!(
            "the tracepoint may be a uprobe of the kernel's: tracefs can't be read: {error}"
        )),
    }
}
