//! A small process that traces the probed one for this one, and restores it when this one ends without doing so, even
//! by SIGKILL.
//!
//! When a tracer dies, the kernel lets its threads go on at once, with the registers that they happen to have. So the
//! tool itself never traces: its death at any step is only the end of a connection, whose other side then undoes what
//! was begun. It is a fork of this process; between two requests, it sleeps. What there is to restore stands in memory
//! that both share: written before a jump is, and taken out after the bytes are restored.
//!
//! To kill both at once, or the tracer process alone while it has stopped a thread, is not provided for.

use super::{
    child::Child,
    error::{Error, Result},
    fault,
    jumps::{Jumps, Semaphore},
    memory::Memory,
    priority::Priority,
    replaced::Replaced,
    server::Server,
    wire::Message,
};
use rustix::{fd::AsFd as _, process::PidfdFlags};
use std::{
    os::unix::net::UnixStream,
    sync::{Mutex, PoisonError},
};

/// The tracer process, and what it has to restore.
#[derive(Debug)]
pub(super) struct Tracer {
    /// The probed process.
    pid: i32,
    /// None once it is killed.
    process: Option<Child>,
    channel: Mutex<UnixStream>,
    jumps: Jumps,
}

impl Tracer {
    /// Starts the tracer process for the probed one.
    pub(super) fn start(pid: i32, memory: &Memory) -> Result<Self> {
        let tool = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|error| Error::system("pidfd_open", error))?;
        let (ours, theirs) =
            UnixStream::pair().map_err(|error| Error::system("socketpair", error))?;
        let jumps = Jumps::new()?;
        // For the child, too, which would wait its turn before it could do so itself.
        let priority = Priority::raise(0);
        let kept = [tool.as_fd(), memory.as_fd(), theirs.as_fd()];
        let process = Child::fork(&kept, || {
            fault::die_at(0);
            Server::new(pid, memory, &jumps, &theirs, &tool).run();
        });
        drop(priority);
        let process =
            process.map_err(|error| Error::system("fork of the tracer process", error))?;
        Ok(Tracer {
            pid,
            process: Some(process),
            channel: Mutex::new(ours),
            jumps,
        })
    }

    /// The probed process.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a request, and waits for the reply. `call` is the system call that it asks for.
    pub(super) fn ask(&self, call: &'static str, request: &Message) -> Result<Vec<u64>> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        fault::step();
        let reply = request.send(&channel).and_then(|()| {
            fault::step();
            Message::receive(&channel)
        });
        reply
            .map_err(|error| Error::system("the tracer process has ended", error))?
            .result(self.pid, call)
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

    /// Takes a jump out that is no longer there.
    pub(super) fn remove(&self, address: u64) {
        fault::step();
        self.jumps.remove(address);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // What is still attached is left to it: it ends by itself.
        if self.jumps.is_empty()
            && let Some(process) = self.process.take()
        {
            process.kill();
        }
    }
}
