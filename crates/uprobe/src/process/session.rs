//! A process that the tracer process has stopped for this one.

use super::{
    error::{Error, Result},
    memory::Write,
    priority::Priority,
    stopped::Registers,
    tracer::Tracer,
    wire::{self, Message},
};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Stops of a process, of all its threads or of a single one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stops {
    /// Number of stops.
    pub number: u64,
    /// Time of the longest one.
    pub longest: Duration,
    /// The most system calls that a thread made in one.
    pub most_calls: u64,
}

/// Threads that are stopped until this is dropped, or this process dies. Then they go on with their own registers;
/// what was mapped meanwhile stays, but for that of a process that died.
#[derive(Debug)]
pub struct Session {
    /// Number of system calls.
    calls: AtomicU64,
    tracer: Arc<Tracer>,
    /// The tracer process that stopped it.
    holder: libc::pid_t,
    threads: Vec<(i32, Registers)>,
    since: Instant,
    is_over: bool,
    _priority: Priority,
}

impl Session {
    /// Stops all threads of the process.
    pub(super) fn all(tracer: &Arc<Tracer>) -> Result<Self> {
        Self::stop(tracer, wire::STOP_ALL)
    }

    /// Stops a single thread of the process, the others go on.
    pub(super) fn one(tracer: &Arc<Tracer>) -> Result<Self> {
        Self::stop(tracer, wire::STOP_ONE)
    }

    /// Stops a thread that has used little CPU time, the others go on. Another tool may hold another thread meanwhile.
    pub(super) fn idle(tracer: &Arc<Tracer>) -> Result<Self> {
        Self::stop(tracer, wire::STOP_IDLE)
    }

    fn stop(tracer: &Arc<Tracer>, kind: u64) -> Result<Self> {
        let priority = Priority::raise(0);
        let since = Instant::now();
        let (holder, threads) = tracer.stop(kind)?;
        Ok(Session {
            calls: AtomicU64::new(0),
            tracer: Arc::clone(tracer),
            holder,
            threads: wire::to_registers(&threads),
            since,
            is_over: false,
            _priority: priority,
        })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.tracer.pid()
    }

    /// The stopped threads, by ascending ID, with the registers that they had then.
    pub fn threads(&self) -> &[(i32, Registers)] {
        &self.threads
    }

    /// Returns how long the process has been stopped, from before its first thread was.
    pub fn duration(&self) -> Duration {
        self.since.elapsed()
    }

    /// An error where the tracer process was killed: the threads go on.
    pub(super) fn check(&self) -> Result<()> {
        if self.tracer.holds(self.holder) {
            return Ok(());
        }
        Err(Error::TracerEnded { pid: self.pid() })
    }

    /// Gives threads other registers. To be called before the first system call.
    pub(super) fn set_registers(&self, threads: &[(i32, Registers)]) -> Result<()> {
        if threads.is_empty() {
            return Ok(());
        }
        let mut numbers = wire::from_registers(threads);
        numbers.insert(0, wire::SET_REGISTERS);
        self.tracer
            .ask(self.holder, "PTRACE_SETREGS", &Message::new(numbers))
            .map(drop)
    }

    /// Writes code that no thread executes yet.
    pub(super) fn write(&self, writes: &[Write]) -> Result<()> {
        self.send(wire::WRITE, "write", writes)
    }

    /// Writes code that threads executed before.
    pub(super) fn patch(&self, writes: &[Write]) -> Result<()> {
        self.send(wire::PATCH, "membarrier", writes)
    }

    fn send(&self, kind: u64, call: &'static str, writes: &[Write]) -> Result<()> {
        if writes.is_empty() {
            return Ok(());
        }
        let mut numbers = wire::from_writes(writes);
        numbers.insert(0, kind);
        self.tracer
            .ask(self.holder, call, &Message::new(numbers))
            .map(drop)
    }

    /// Has a thread of the process make one system call, whose name is for errors. Returns what it returns.
    pub fn call(
        &self,
        name: &'static str,
        number: libc::c_long,
        arguments: [u64; 6],
    ) -> Result<u64> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let numbers = [&[wire::CALL, number as u64], &arguments[..]].concat();
        let value = self.tracer.ask(self.holder, name, &Message::new(numbers))?;
        value
            .first()
            .copied()
            .ok_or(Error::Gone { pid: self.pid() })
    }

    /// Has a thread map memory, by these arguments of `mmap`, that is unmapped once the tool is gone and no thread can be in
    /// its code. Returns the address.
    pub(super) fn map(&self, arguments: [u64; 6]) -> Result<u64> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let numbers = [&[wire::MAP], &arguments[..]].concat();
        let value = self
            .tracer
            .ask(self.holder, "mmap", &Message::new(numbers))?;
        value
            .first()
            .copied()
            .ok_or(Error::Gone { pid: self.pid() })
    }

    /// Has memory that was mapped at an address stay when the tool is gone.
    pub(super) fn keep(&self, address: u64) {
        self.tracer.keep(address);
    }

    /// Lets the threads go on. An error where the one that made system calls is gone.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        let finish = Message::new([wire::FINISH]);
        let ended = self.tracer.ask(self.holder, "finish", &finish).map(drop);
        let calls = self.calls.load(Ordering::Relaxed);
        self.tracer.note(self.since.elapsed(), calls);
        ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An error here means that the thread is gone.
        let _ = self.end();
    }
}
