//! A small process that traces the probed one for this one, and restores it when this one ends without doing so, even
//! by SIGKILL.
//!
//! When a tracer dies, the kernel lets its threads go on at once, with the registers that they happen to have. So the
//! tool itself never traces: its death at any step is only the end of a connection, whose other side then undoes what
//! was begun. It is a fork of this process; between two requests, it sleeps. What there is to restore stands in memory
//! that both share: written before a jump is, and taken out after the bytes are restored.
//!
//! If the tracer process is killed, the tool starts another one when it next stops the probed process. To
//! kill both at once, or the tracer process while a thread makes a system call for it, is not provided for.

use super::{
    child::{Child, this_process},
    error::{Error, Result},
    fault,
    handlers::Action,
    identity::{Mark, Watched},
    jumps::{Jumps, Semaphore},
    layout::Layout,
    memory::Memory,
    priority::Priority,
    replaced::Replaced,
    server::Server,
    session::Stops,
    vdso::Places,
    wire::{self, Message},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::AsFd as _,
};
use std::{
    fs,
    os::unix::net::UnixStream,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The tracer process, and what it has to restore.
#[derive(Debug)]
pub(super) struct Tracer {
    /// The probed process.
    pid: i32,
    memory: Memory,
    jumps: Jumps,
    watched: Option<Watched>,
    helper: Mutex<Helper>,
    stops: Mutex<Stops>,
}

#[derive(Debug)]
struct Helper {
    process: Child,
    channel: UnixStream,
}

impl Tracer {
    /// Starts the tracer process for the probed one.
    pub(super) fn start(pid: i32, memory: &Memory) -> Result<Self> {
        let (memory, jumps) = (memory.try_clone()?, Jumps::new()?);
        let watched = Watched::start(pid);
        Ok(Tracer {
            helper: Mutex::new(Helper::start(pid, &memory, &jumps, watched.as_ref())?),
            pid,
            memory,
            jumps,
            watched,
            stops: Mutex::default(),
        })
    }

    /// The counter of processes that share the probed one's memory.
    pub(super) fn watched(&self) -> Option<&Watched> {
        self.watched.as_ref()
    }

    /// Says by which mark the process's memory is recognised.
    pub(super) fn set_mark(&self, mark: Mark) {
        self.jumps.set_mark(mark);
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Stops the process, by this kind of request. Returns the tracer process that holds it, and the reply.
    pub(super) fn stop(&self, kind: u64) -> Result<(libc::pid_t, Vec<u64>)> {
        self.begin("stop", &Message::new([kind]))
    }

    /// Sends a request to a tracer process that holds nothing. Where it was killed, another takes its place: a thread
    /// that it was about to stop has its own registers.
    fn begin(&self, call: &'static str, request: &Message) -> Result<(libc::pid_t, Vec<u64>)> {
        let mut helper = self.helper();
        let reply = match helper.exchange(request) {
            Ok(reply) => reply,
            Err(_) => {
                helper.process.reap();
                let watched = self.watched.as_ref();
                *helper = Helper::start(self.pid, &self.memory, &self.jumps, watched)?;
                let reply = helper.exchange(request);
                reply.map_err(|_| Error::TracerEnded { pid: self.pid })?
            }
        };
        Ok((helper.process.pid(), reply.result(self.pid, call)?))
    }

    /// Sends a request to the tracer process that holds the process, and waits for the reply. `call` is the system call
    /// that it asks for.
    pub(super) fn ask(
        &self,
        holder: libc::pid_t,
        call: &'static str,
        request: &Message,
    ) -> Result<Vec<u64>> {
        let ended = Error::TracerEnded { pid: self.pid };
        let helper = self.helper();
        if helper.process.pid() != holder {
            return Err(ended);
        }
        let reply = helper.exchange(request).map_err(|_| ended)?;
        reply.result(self.pid, call)
    }

    /// Returns whether a tracer process still holds the process. If not, it was killed, and the threads go on.
    pub(super) fn holds(&self, holder: libc::pid_t) -> bool {
        let helper = self.helper();
        let mut channel = [PollFd::new(&helper.channel, PollFlags::empty())];
        let ended = rustix::event::poll(&mut channel, Some(&Timespec::default()));
        helper.process.pid() == holder && ended == Ok(0)
    }

    /// Returns whether there is nothing left to restore, or nothing left where to. Restores what is not a jump.
    fn is_done(&self) -> bool {
        let has_jumps = !self.jumps.is_empty();
        let restores_others = || {
            let request = Message::new([wire::RESTORE_OTHERS]);
            let restored = self.begin("restore", &request);
            restored.is_ok() && self.jumps.are_others_restored()
        };
        // What is still attached is left to the tracer process: it ends by itself.
        let is_clean = self.jumps.are_others_restored() && self.jumps.mapped().is_empty();
        if !has_jumps && (is_clean || restores_others()) {
            return true;
        }
        let is_in_children = has_jumps && self.jumps.children().is_some();
        self.memory.is_gone() && !is_in_children
    }

    fn helper(&self) -> MutexGuard<'_, Helper> {
        self.helper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a jump that is about to be written. An error where there are too many.
    pub(super) fn add(&self, address: u64, replaced: &Replaced) -> Result<()> {
        fault::step();
        self.jumps
            .add(address, replaced)
            .ok_or(Error::Full { pid: self.pid })
    }

    /// Says whether the semaphore of a jump is raised.
    pub(super) fn set_semaphore(&self, address: u64, semaphore: Semaphore) {
        fault::step();
        self.jumps.set_semaphore(address, semaphore);
    }

    /// Says which signal handlers are about to be replaced, and by which one.
    pub(super) fn set_handlers(&self, scratch: u64, ours: u64, old: [Action; 2]) {
        fault::step();
        self.jumps.handlers().set(scratch, ours, old);
    }

    /// Which signal handlers were replaced last.
    pub(super) fn old_handlers(&self) -> [Action; 2] {
        self.jumps.handlers().old()
    }

    /// Says which instructions of the vDSO are about to be replaced, and where the memory of probes is.
    pub(super) fn set_vdso(&self, places: Places, layout: Layout) {
        fault::step();
        self.jumps.vdso().set(places, layout);
    }

    /// Says which word leads helpers there.
    pub(super) fn set_vdso_caller(&self, word: u64) {
        self.jumps.vdso().set_caller(word);
    }

    /// Says by which memory forked children are known.
    pub(super) fn set_children(&self, inode: u64) {
        self.jumps.set_children(inode);
    }

    /// Restores jumps at these addresses in forked children.
    pub(super) fn restore_children(&self, addresses: &[u64]) -> Result<()> {
        if self.jumps.children().is_none() || addresses.is_empty() {
            return Ok(());
        }
        let numbers = [&[wire::RESTORE_CHILDREN], addresses].concat();
        self.begin("restore children", &Message::new(numbers))
            .map(drop)
    }

    /// Counts a stop, which took so long, with so many system calls.
    pub(super) fn note(&self, duration: Duration, calls: u64) {
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        stops.number += 1;
        stops.longest = stops.longest.max(duration);
        stops.most_calls = stops.most_calls.max(calls);
    }

    /// The stops so far.
    pub(super) fn stops(&self) -> Stops {
        *self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has what was mapped at an address stay in the process.
    pub(super) fn keep(&self, address: u64) {
        self.jumps.mapped().remove(address);
    }

    /// Has all that is mapped stay in the process.
    pub(super) fn keep_mapped(&self) {
        self.jumps.mapped().keep();
    }

    /// Takes a jump out that is no longer there.
    pub(super) fn remove(&self, address: u64) {
        fault::step();
        self.jumps.remove(address);
    }
}

impl Helper {
    fn start(pid: i32, memory: &Memory, jumps: &Jumps, watched: Option<&Watched>) -> Result<Self> {
        let tool = this_process().map_err(|error| Error::system("pidfd_open", error))?;
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::system("socketpair", error))?;
        // For the child, too, which would wait its turn before it could do so itself.
        let priority = Priority::raise(0);
        let mut kept = vec![tool.as_fd(), memory.as_fd(), theirs.as_fd()];
        // Until all is restored, the probes need the counter.
        kept.extend(watched.iter().flat_map(|watched| watched.files()));
        let process = Child::fork(&kept, || {
            fault::die_at(0);
            // The threads that it holds would go on with wrong registers if the kernel, short of memory, killed it.
            let _ = fs::write("/proc/self/oom_score_adj", "-1000");
            Server::new(pid, memory, jumps, watched, (&theirs, &tool)).run();
        });
        drop(priority);
        let process =
            process.map_err(|error| Error::system("fork of the tracer process", error))?;
        Ok(Helper {
            process,
            channel: ours,
        })
    }

    fn exchange(&self, request: &Message) -> std::io::Result<Message> {
        fault::step();
        request.send(&self.channel)?;
        fault::step();
        Message::receive(&self.channel)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if self.is_done() {
            self.helper().process.kill();
        }
    }
}
