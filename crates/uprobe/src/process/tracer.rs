//! A small process that traces the probed one for this one, and restores it when this one ends without doing so, even
//! by SIGKILL.
//!
//! When a tracer dies, the kernel lets its threads go on at once, with the registers that they happen to have. So the
//! tool itself never traces: its death at any step is only the end of a connection, whose other side then undoes what
//! was begun. It is a fork of this process; between two requests, it sleeps. What there is to restore stands in memory
//! that both share: written before a jump is, and taken out after the bytes are restored.
//!
//! To kill both at once, or the tracer process alone while it has stopped a thread, is not provided for.

#![allow(unsafe_code, reason = "a process is forked, and memory shared with it")]

use super::{
    error::{Error, Result},
    fault,
    maps::{Mapping, Origin},
    memory::Memory,
    patch::Replaced,
    priority::Priority,
    server::Server,
    site::JUMP,
    wire::Message,
};
use rustix::{
    mm::{MapFlags, ProtFlags},
    process::{Pid, PidfdFlags},
};
use std::{
    os::unix::net::UnixStream,
    panic,
    ptr::{self, NonNull},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// How many jumps there may be at once.
const ENTRIES: usize = 4096;
const SIZE: usize = size_of::<[Entry; ENTRIES]>();

/// One jump: no address where there is none.
#[derive(Default)]
struct Entry {
    address: AtomicU64,
    original: AtomicU64,
    jump: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
    /// The address of the semaphore, 0 where there is none.
    semaphore: AtomicU64,
    /// What it holds if it is raised, or [`RAISED`].
    number: AtomicU64,
}

/// In the place of a semaphore's number: it is raised, whatever it holds.
const RAISED: u64 = u64::MAX;

/// Whether the semaphore of a jump is raised for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Semaphore {
    /// There is none to lower.
    Nothing,
    /// The one at this address is, if it holds this number: the tool is about to change it.
    MaybeRaised(u64, u16),
    /// The one at this address is.
    Raised(u64),
}

impl Entry {
    /// Lowers a semaphore that is certainly raised, or one that may be.
    fn lower(&self, memory: &Memory, all: &[Mapping], is_certain: bool) {
        let address = self.address.load(Ordering::Acquire);
        let at = self.semaphore.load(Ordering::Acquire);
        let raised = self.number.load(Ordering::Acquire);
        if address == 0
            || at == 0
            || (raised == RAISED) != is_certain
            || !self.replaced().is_there(address, memory, all)
        {
            return;
        }
        if let Ok(number) = memory.read_u16(at)
            && (is_certain || u64::from(number) == raised)
        {
            let _ = memory.write(at, &number.saturating_sub(1).to_le_bytes());
        }
        self.semaphore.store(0, Ordering::Release);
    }

    fn replaced(&self) -> Replaced {
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Replaced {
            original: to_bytes(load(&self.original)),
            jump: to_bytes(load(&self.jump)),
            origin: Origin {
                device: load(&self.device),
                inode: load(&self.inode),
                offset: load(&self.offset),
            },
            semaphore: None,
        }
    }
}

/// The jumps in the process, in memory that outlives the tool.
#[derive(Debug)]
pub(super) struct Jumps {
    entries: NonNull<[Entry; ENTRIES]>,
}

// SAFETY: the mapping belongs to this value, and is used through atomics alone.
unsafe impl Send for Jumps {}
// SAFETY: as above.
unsafe impl Sync for Jumps {}

/// The tracer process, and what it has to restore.
#[derive(Debug)]
pub(super) struct Tracer {
    /// The probed process.
    pid: i32,
    process: libc::pid_t,
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
        // SAFETY: the child calls nothing that needs this process's other threads: files and memory, whose allocator
        // glibc makes usable in it. It never returns from here.
        let process = unsafe { libc::fork() };
        if process == 0 {
            fault::die_at(0);
            let server = panic::AssertUnwindSafe(|| {
                Server::new(pid, memory, &jumps, &theirs, &tool).run();
            });
            let status = i32::from(panic::catch_unwind(server).is_err());
            // SAFETY: ends the process without any of the handlers that belong to the other one.
            unsafe { libc::_exit(status) };
        }
        drop(priority);
        if process < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Error::system("fork of the tracer process", error));
        }
        Ok(Tracer {
            pid,
            process,
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
            && let Some(process) = Pid::from_raw(self.process)
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty());
        }
    }
}

impl Jumps {
    fn new() -> Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, where the kernel likes, used through the pointer alone. Zeroes are valid entries.
        let mapping = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), SIZE, access, flags) };
        let mapping = mapping.map_err(|error| Error::system("mmap of the list of jumps", error))?;
        let entries = NonNull::new(mapping.cast()).expect("the kernel maps nothing at 0");
        Ok(Jumps { entries })
    }

    fn add(&self, address: u64, replaced: &Replaced) -> Option<()> {
        let mut entries = self.entries().iter();
        let free = entries.find(|entry| entry.address.load(Ordering::Relaxed) == 0)?;
        let Origin {
            device,
            inode,
            offset,
        } = replaced.origin;
        for (field, value) in [
            (&free.original, to_number(replaced.original)),
            (&free.jump, to_number(replaced.jump)),
            (&free.device, device),
            (&free.inode, inode),
            (&free.offset, offset),
            (&free.semaphore, 0),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        free.address.store(address, Ordering::Release);
        Some(())
    }

    fn set_semaphore(&self, address: u64, semaphore: Semaphore) {
        let (at, number) = match semaphore {
            Semaphore::Nothing => (0, 0),
            Semaphore::MaybeRaised(at, number) => (at, u64::from(number)),
            Semaphore::Raised(at) => (at, RAISED),
        };
        let mut entries = self.entries().iter();
        let entry = entries.find(|entry| entry.address.load(Ordering::Relaxed) == address);
        if let Some(entry) = entry {
            entry.number.store(number, Ordering::Release);
            entry.semaphore.store(at, Ordering::Release);
        }
    }

    fn remove(&self, address: u64) {
        for entry in self.entries() {
            let _ = entry
                .address
                .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut entries = self.entries().iter();
        entries.all(|entry| entry.address.load(Ordering::Acquire) == 0)
    }

    /// Takes all jumps out, restores the bytes and lowers the semaphores.
    pub(super) fn restore(&self, memory: &Memory, all: &[Mapping]) {
        // The one that may or may not be raised first, before others that raised the same change its number.
        for is_certain in [false, true] {
            for entry in self.entries() {
                entry.lower(memory, all, is_certain);
            }
        }
        for entry in self.entries() {
            let address = entry.address.load(Ordering::Acquire);
            if address != 0 {
                // The tool that would report an error is gone.
                let _ = entry.replaced().restore(address, memory, all);
                entry.address.store(0, Ordering::Release);
            }
        }
    }

    fn entries(&self) -> &[Entry; ENTRIES] {
        // SAFETY: the mapping lives as long as this value, and holds valid entries: all their fields are atomics.
        unsafe { self.entries.as_ref() }
    }
}

impl Drop for Jumps {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left. The other process has its own.
        let _ = unsafe { rustix::mm::munmap(self.entries.as_ptr().cast(), SIZE) };
    }
}

fn to_number(bytes: [u8; JUMP]) -> u64 {
    let mut number = [0; 8];
    number[..JUMP].copy_from_slice(&bytes);
    u64::from_le_bytes(number)
}

fn to_bytes(number: u64) -> [u8; JUMP] {
    let mut bytes = [0; JUMP];
    bytes.copy_from_slice(&number.to_le_bytes()[..JUMP]);
    bytes
}
