//! Work of the tracer process: it stops the probed process, has it make system calls, and undoes all of that when
//! the tool is gone.

use super::{
    children::descendants,
    error::{Error, Result},
    files::FileLimit,
    identity::Watched,
    jumps::Jumps,
    mapped::{OWN, Owned},
    maps::mappings,
    memory::Memory,
    remote::Remote,
    stopped::Stopped,
    wire::{self, Message},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::OwnedFd,
};
use std::{cell::Cell, collections::BTreeSet, os::unix::net::UnixStream, thread, time::Duration};

/// Number of times it tries that again in forked children.
const CHILD_ATTEMPTS: u32 = 500;
/// Number of times it tries to restore a vDSO, at growing intervals, for threads that are in a probe: while the tool
/// waits for it (0.1 s), and when that is gone (some 10 s).
const VDSO_ATTEMPTS: u32 = 5;
const LAST_VDSO_ATTEMPTS: u32 = 50;
/// Number of times it tries to unmap the tool's memory, at growing intervals (0.1 s in all).
const RELEASE_ATTEMPTS: u32 = 5;
/// Number of times it tries to stop a process that another tool holds, and the time between two.
const STOP_ATTEMPTS: u32 = 100;
const STOP_INTERVAL: Duration = Duration::from_millis(1);
/// Time between two attempts to stop a process that another one traces.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Time between two looks for processes that share the memory; longer where some stay.
const SHARER_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SHARER_INTERVAL: Duration = Duration::from_secs(5);
/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE`: each CPU forgets instructions that it read ahead. The stop alone does
/// not say so: a thread that was stopped and goes on on the same CPU may return to user space by an instruction that
/// doesn't serialize.
pub(super) const SYNC_CORE: [u64; 6] = [1 << 5, 0, 0, 0, 0, 0];

pub(super) struct Server<'a> {
    pub(super) pid: i32,
    pub(super) memory: &'a Memory,
    pub(super) jumps: &'a Jumps,
    pub(super) watched: Option<&'a Watched>,
    /// When it looks again for processes that share the memory.
    interval: Cell<Duration>,
    channel: &'a UnixStream,
    tool: &'a OwnedFd,
}

/// A system call: its number and its arguments.
type Call = (libc::c_long, [u64; 6]);

/// Mappings and files that were made in one session, and that no thread uses yet.
#[derive(Default)]
struct Made {
    mappings: Vec<(u64, u64)>,
    files: Vec<u64>,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        pid: i32,
        memory: &'a Memory,
        jumps: &'a Jumps,
        watched: Option<&'a Watched>,
        (channel, tool): (&'a UnixStream, &'a OwnedFd),
    ) -> Self {
        Server {
            pid,
            memory,
            jumps,
            watched,
            interval: Cell::new(SHARER_INTERVAL),
            channel,
            tool,
        }
    }

    /// Serves the tool until it is gone, then restores what it left.
    pub(super) fn run(&self) {
        while let Some(request) = self.next() {
            let stopped = match request.numbers[..] {
                [wire::STOP_ALL] => self.stop_all(),
                [wire::STOP_ONE] => self.stop(Stopped::one).map(|one| (one, Vec::new())),
                [wire::STOP_IDLE] => self.stop(Stopped::idle).map(|one| (one, Vec::new())),
                [wire::RESTORE_CHILDREN, ref addresses @ ..] => {
                    self.reply(self.restore_children(Some(addresses)).map(|()| Vec::new()));
                    continue;
                }
                [wire::RESTORE_OTHERS] => {
                    let restored = self.restore_handlers();
                    self.restore_vdso(VDSO_ATTEMPTS);
                    self.release(RELEASE_ATTEMPTS);
                    self.reply(restored.map(|()| Vec::new()));
                    continue;
                }
                _ => break,
            };
            let (stopped, sharers) = match stopped {
                Ok(stopped) => stopped,
                Err(error) => {
                    self.reply(Err(error));
                    continue;
                }
            };
            let finished = self.hold(&stopped, request.numbers == [wire::STOP_ALL]);
            // The reply says that the threads go on.
            drop((stopped, sharers));
            match finished {
                Some(result) => self.reply(result),
                None => break,
            }
        }
        // Restored while threads run, an instruction could be seen half old and half new.
        while !self.jumps.is_empty() || !self.jumps.handlers().is_empty() {
            match self.stop_all() {
                Err(Error::Unstoppable { .. } | Error::Traced { .. }) => {
                    thread::sleep(RETRY_INTERVAL)
                }
                stopped => {
                    let _ = stopped.map(|(stopped, _sharers)| self.restore(&stopped));
                    break;
                }
            }
        }
        let _ = self.restore_children(None);
        self.restore_vdso(LAST_VDSO_ATTEMPTS);
        self.release(RELEASE_ATTEMPTS);
    }

    /// Stops the process. One that has ended is an error: its number may be another's by now. Another tool that holds it is
    /// waited for: it unmaps what an earlier one left.
    pub(super) fn stop(&self, stop: impl Fn(i32) -> Result<Stopped>) -> Result<Stopped> {
        for _ in 1..STOP_ATTEMPTS {
            if self.memory.is_gone() {
                return Err(Error::Gone { pid: self.pid });
            }
            match stop(self.pid) {
                Err(Error::Traced { .. }) => thread::sleep(STOP_INTERVAL),
                stopped => return stopped,
            }
        }
        stop(self.pid)
    }

    /// Stops all threads of the process, and the processes that share its memory, as far as they can be: they execute
    /// the same code.
    pub(super) fn stop_all(&self) -> Result<(Stopped, Vec<Stopped>)> {
        let stopped = self.stop(Stopped::all)?;
        let mut sharers: Vec<Stopped> = Vec::new();
        if self.watched.is_some_and(|watched| watched.count() == 0) {
            return Ok((stopped, sharers));
        }
        let Some(mark) = self.jumps.mark() else {
            return Ok((stopped, sharers));
        };
        let mut tried = BTreeSet::new();
        // One that was not stopped yet may have made another.
        loop {
            let mut new = mark.sharers(self.pid);
            new.retain(|sharer| tried.insert(sharer.pid));
            if new.is_empty() {
                return Ok((stopped, sharers));
            }
            // The process stands still meanwhile.
            let at_once = new.iter().map(|one| Stopped::all_at_once(one.pid));
            sharers.extend(at_once.filter_map(Result::ok));
        }
    }

    /// Takes processes that shared the memory, and are gone, off the counter. Returns how long to wait before the next
    /// time.
    fn count_sharers(&self, watched: &Watched) -> Duration {
        let counted = watched.count();
        let (Some(mark), 1..) = (self.jumps.mark(), counted) else {
            return SHARER_INTERVAL;
        };
        if !mark.sharers(self.pid).is_empty() {
            return (2 * self.interval.get()).min(MAX_SHARER_INTERVAL);
        }
        watched.take_off(counted);
        SHARER_INTERVAL
    }

    /// Restores jumps in all that the process has forked and that still runs its program, once it can't fork with these
    /// jumps any more: those at some addresses, or all.
    fn restore_children(&self, only: Option<&[u64]>) -> Result<()> {
        let Some(inode) = self.jumps.children() else {
            return Ok(());
        };
        let (mut restored, mut tries) = (BTreeSet::new(), 0);
        // One that was not restored yet may have forked once more.
        loop {
            let mut new = descendants(inode, self.pid);
            new.retain(|pid| !restored.contains(pid));
            if new.is_empty() {
                return Ok(());
            }
            for pid in new {
                match self.restore_child(pid, only) {
                    Ok(()) | Err(Error::NoProcess { .. } | Error::Gone { .. }) => {
                        restored.insert(pid);
                    }
                    // It may be about to end, or to execute another program, or in another tracer's hands.
                    Err(_) if tries < CHILD_ATTEMPTS => {
                        tries += 1;
                        thread::sleep(RETRY_INTERVAL);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn restore_child(&self, pid: i32, only: Option<&[u64]>) -> Result<()> {
        let stopped = Stopped::all(pid)?;
        let memory = Memory::open(pid)?;
        let all = mappings(pid)?;
        self.jumps.restore_child(&memory, &all, only);
        let mut remote = Remote::new(&stopped, &memory)?;
        let (number, arguments) = (libc::SYS_membarrier, SYNC_CORE);
        remote.call("membarrier", number, arguments)?;
        remote.finish()
    }

    /// Serves requests while threads are stopped, up to the last, whose reply it returns. `None` where the tool is
    /// gone, after all was undone.
    fn hold(&self, stopped: &Stopped, are_all: bool) -> Option<Result<Vec<u64>>> {
        let registers = || {
            let threads = stopped.threads_of_user();
            Ok(wire::from_registers(&threads.collect::<Result<Vec<_>>>()?))
        };
        self.reply(registers());
        let mut remote = None;
        let mut made = Made::default();
        let mut limit = None;
        while let Some(request) = self.next() {
            if let [wire::WRITE | wire::PATCH, ..] = request.numbers[..] {
                // From now on, threads may be led there.
                made.mappings.clear();
            }
            let result = match request.numbers[..] {
                [wire::SET_REGISTERS, ref threads @ ..] => wire::to_registers(threads)
                    .into_iter()
                    .try_for_each(|(tid, registers)| stopped.set_registers(tid, registers))
                    .map(|()| Vec::new()),
                [wire::WRITE, ref writes @ ..] => self.write(writes),
                [wire::PATCH, ref writes @ ..] => {
                    let written = self.write(writes);
                    let call = (libc::SYS_membarrier, SYNC_CORE);
                    let synchronized = self.call(stopped, &mut remote, call);
                    written.and_then(|none| synchronized.map(|_| none))
                }
                [wire::CALL, number, a, b, c, d, e, f] => {
                    let call = (number as libc::c_long, [a, b, c, d, e, f]);
                    if matches!(call.0, libc::SYS_memfd_create | libc::SYS_socketpair) {
                        limit = limit.or_else(|| FileLimit::raise(self.pid));
                    }
                    let result = self.call(stopped, &mut remote, call);
                    if let Ok(value) = result {
                        made.note(call, value, self.memory);
                    }
                    result.map(|value| vec![value])
                }
                [wire::MAP, a, b, c, d, e, f] => {
                    let call = (libc::SYS_mmap, [a, b, c, d, e, f]);
                    let result = self.call(stopped, &mut remote, call);
                    if let Ok(at) = result {
                        made.note(call, at, self.memory);
                        let (range, tool) = (at..at + b, OWN);
                        self.jumps.mapped().add(&Owned { range, tool });
                    }
                    result.map(|at| vec![at])
                }
                [wire::FINISH] => {
                    let result = remote.take().map_or(Ok(()), Remote::finish);
                    return Some(result.map(|()| Vec::new()));
                }
                _ => break,
            };
            self.reply(result);
        }
        for call in made.undo() {
            let _ = self.call(stopped, &mut remote, call);
        }
        drop(remote);
        if are_all {
            self.restore(stopped);
        }
        None
    }

    /// Writes bytes. This thread is the tracer: some kernels let no other one write code. One that fails doesn't keep
    /// the others from being written, which may restore other functions. The first error of those that there are.
    fn write(&self, writes: &[u64]) -> Result<Vec<u64>> {
        let writes = wire::to_writes(writes).into_iter();
        let written = writes.map(|write| self.memory.write(write.address, &write.bytes));
        written.fold(Ok(()), Result::and).map(|()| Vec::new())
    }

    /// Has a thread make a system call.
    pub(super) fn call<'s>(
        &self,
        stopped: &'s Stopped,
        remote: &mut Option<Remote<'s>>,
        (number, arguments): Call,
    ) -> Result<u64> {
        let remote = match remote {
            Some(remote) => remote,
            None => remote.insert(Remote::new(stopped, self.memory)?),
        };
        if number == libc::SYS_munmap {
            // Before: something else may be mapped there afterwards.
            self.jumps.mapped().remove(arguments[0]);
        }
        // The name is for errors, and the tool has it.
        remote.call("system call", number, arguments)
    }

    /// Restores what is still replaced, while all threads are stopped.
    fn restore(&self, stopped: &Stopped) {
        let mut remote = None;
        if !self.jumps.is_empty() {
            let all = mappings(self.pid).unwrap_or_default();
            self.jumps.restore(self.memory, &all);
            let _ = self.call(stopped, &mut remote, (libc::SYS_membarrier, SYNC_CORE));
        }
        let _ = self.jumps.handlers().restore(self.memory, |arguments| {
            self.call(stopped, &mut remote, (libc::SYS_rt_sigaction, arguments))
        });
    }

    /// Restores the vDSO of the process and of what it has forked, which no jump leads to any more.
    fn restore_vdso(&self, attempts: u32) {
        let patched = self.jumps.vdso();
        if patched.is_empty() {
            return;
        }
        let restore_own = || {
            if patched.is_in_use(self.memory)? {
                return Ok(false);
            }
            let (_stopped, _sharers) = self.stop_all()?;
            patched.restore(self.memory)
        };
        if !is_restored(attempts, restore_own) {
            return;
        }
        let children = self.jumps.children();
        let (mut tried, mut are_restored) = (BTreeSet::new(), true);
        // One that was not restored yet may have forked once more.
        while let Some(pid) = children.and_then(|inode| {
            let mut new = descendants(inode, self.pid).into_iter();
            new.find(|pid| !tried.contains(pid))
        }) {
            tried.insert(pid);
            are_restored &= is_restored(attempts, || {
                let _stopped = Stopped::all(pid)?;
                patched.restore(&Memory::open(pid)?)
            });
        }
        if are_restored {
            patched.clear();
        }
    }

    /// Restores signal handlers, at the end of a tool that restored all else.
    fn restore_handlers(&self) -> Result<()> {
        if self.jumps.handlers().is_empty() {
            return Ok(());
        }
        let stopped = self.stop(Stopped::all)?;
        let mut remote = None;
        let restored = self.jumps.handlers().restore(self.memory, |arguments| {
            self.call(&stopped, &mut remote, (libc::SYS_rt_sigaction, arguments))
        });
        restored.and(remote.map_or(Ok(()), Remote::finish))
    }

    /// The next request. `None` where the tool is gone.
    fn next(&self) -> Option<Message> {
        let mut either = [
            PollFd::new(self.tool, PollFlags::IN),
            PollFd::new(self.channel, PollFlags::IN),
        ];
        loop {
            let timeout = self.watched.map(|_| {
                let timeout = Timespec::try_from(self.interval.get());
                timeout.expect("it is a few seconds")
            });
            match rustix::event::poll(&mut either, timeout.as_ref()) {
                Ok(1..) => break,
                Ok(0) => {
                    let next = self.watched.map(|watched| self.count_sharers(watched));
                    self.interval.set(next.unwrap_or(SHARER_INTERVAL));
                }
                Err(_) => {}
            }
        }
        if !either[0].revents().is_empty() {
            return None;
        }
        Message::receive(self.channel).ok()
    }

    fn reply(&self, result: Result<Vec<u64>>) {
        // An error means that the tool is gone, and so will the next request.
        let _ = Message::reply(result).send(self.channel);
    }
}

/// Tries to restore something of a process so often. Returns whether it is restored, or the process is gone.
pub(super) fn is_restored(attempts: u32, mut restore: impl FnMut() -> Result<bool>) -> bool {
    for attempt in 0..attempts {
        thread::sleep(attempt * RETRY_INTERVAL);
        match restore() {
            Ok(true) | Err(Error::NoProcess { .. } | Error::Gone { .. }) => return true,
            // A thread is in a probe, or another process traces it.
            Ok(false) | Err(_) => {}
        }
    }
    false
}

impl Made {
    /// Takes notice of a call that returned this.
    fn note(&mut self, (number, arguments): Call, value: u64, memory: &Memory) {
        let word = |address: u64| memory.read_u64(address).unwrap_or_default();
        match number {
            libc::SYS_mmap => self.mappings.push((value, arguments[1])),
            libc::SYS_memfd_create => self.files.push(value),
            libc::SYS_socketpair => {
                let pair = word(arguments[3]);
                self.files.extend([pair & 0xffff_ffff, pair >> 32]);
            }
            libc::SYS_recvmsg => {
                let (control, mut rest) = (word(arguments[1] + 32), 0);
                if control != 0 {
                    rest = word(control).min(word(arguments[1] + 40));
                }
                // Descriptors follow the header of 16 bytes.
                for offset in (16..rest).step_by(4) {
                    self.files.push(word(control + offset) & 0xffff_ffff);
                }
            }
            libc::SYS_munmap => self.mappings.retain(|&(at, _)| at != arguments[0]),
            libc::SYS_close => self.files.retain(|&file| file != arguments[0]),
            _ => {}
        }
    }

    /// The calls that take back what was made, the latest first.
    fn undo(self) -> impl Iterator<Item = Call> {
        let files = self.files.into_iter().rev();
        let mappings = self.mappings.into_iter().rev();
        files
            .map(|file| (libc::SYS_close, [file, 0, 0, 0, 0, 0]))
            .chain(mappings.map(|(at, size)| (libc::SYS_munmap, [at, size, 0, 0, 0, 0])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{child::this_process, memory::Write};

    #[test]
    fn a_write_that_fails_does_not_keep_others_from_being_written() {
        let pid = std::process::id() as i32;
        let (memory, jumps) = (Memory::open(pid).unwrap(), Jumps::new().unwrap());
        let (channel, _) = UnixStream::pair().unwrap();
        let tool = this_process().unwrap();
        let server = Server::new(pid, &memory, &jumps, None, (&channel, &tool));
        let bytes = [const { std::sync::atomic::AtomicU8::new(0) }; 2];
        let write = |address: u64| Write {
            address,
            bytes: vec![7],
        };
        let address = |index: usize| bytes[index].as_ptr() as u64;
        // Nothing is mapped at 8.
        let writes = [address(0), 8, address(1)].map(write);
        let error = server.write(&wire::from_writes(&writes)).unwrap_err();
        assert!(error.to_string().contains(" 0x8"), "{error}");
        for byte in bytes {
            assert_eq!(byte.into_inner(), 7);
        }
    }
}
