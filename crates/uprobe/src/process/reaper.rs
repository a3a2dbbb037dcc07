//! A small process that restores the probed one when this one ends without it, even by SIGKILL.
//!
//! It is a fork of this process, and sleeps until this process is gone. What there is to restore stands in memory that
//! both share: written before a jump is, and taken out after the bytes are restored.

#![allow(unsafe_code, reason = "a process is forked, and memory shared with it")]

use super::{
    error::{Error, Result},
    memory::Memory,
    runtime::Replaced,
    site::JUMP,
    stopped::Stopped,
};
use rustix::{
    event::{PollFd, PollFlags},
    mm::{MapFlags, ProtFlags},
    process::{Pid, PidfdFlags},
};
use std::{
    os::fd::{AsRawFd, RawFd},
    panic,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

/// How many jumps there may be at once.
const ENTRIES: usize = 4096;

/// One jump: no address where there is none.
#[derive(Default)]
struct Entry {
    address: AtomicU64,
    original: AtomicU64,
    jump: AtomicU64,
    /// The address of a semaphore that was raised for it, 0 where there is none.
    semaphore: AtomicU64,
}

/// The process that restores, and what it has to.
#[derive(Debug)]
pub(super) struct Reaper {
    process: libc::pid_t,
    entries: NonNull<[Entry; ENTRIES]>,
}

// SAFETY: the mapping belongs to this value, and is used through atomics alone.
unsafe impl Send for Reaper {}
// SAFETY: as above.
unsafe impl Sync for Reaper {}

impl Reaper {
    /// Starts the process for the probed one.
    pub(super) fn start(pid: i32, memory: &Memory) -> Result<Self> {
        let this = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
            .map_err(|error| Error::system("pidfd_open", error))?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, where the kernel likes, used through the pointer alone. Zeroes are valid entries.
        let mapping = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), SIZE, access, flags) };
        let mapping = mapping.map_err(|error| Error::system("mmap for the reaper", error))?;
        let entries = NonNull::new(mapping.cast()).expect("the kernel maps nothing at 0");
        // SAFETY: the child calls nothing that needs this process's other threads: files and memory, whose allocator
        // glibc makes usable in it. It never returns from here.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let reaper = Reaper { process, entries };
            let wait = panic::AssertUnwindSafe(|| reaper.wait(&this, pid, memory));
            let status = i32::from(panic::catch_unwind(wait).is_err());
            // SAFETY: ends the process without any of the handlers that belong to the other one.
            unsafe { libc::_exit(status) };
        }
        let reaper = Reaper { process, entries };
        if process < 0 {
            return Err(Error::system(
                "fork of the reaper",
                std::io::Error::last_os_error(),
            ));
        }
        Ok(reaper)
    }

    /// Adds a jump that is about to be written. An error where there are too many.
    pub(super) fn add(&self, pid: i32, address: u64, replaced: &Replaced) -> Result<()> {
        let free = self
            .entries()
            .iter()
            .find(|entry| entry.address.load(Ordering::Relaxed) == 0);
        let entry = free.ok_or(Error::Full { pid })?;
        entry
            .original
            .store(number(replaced.original), Ordering::Relaxed);
        entry.jump.store(number(replaced.jump), Ordering::Relaxed);
        let semaphore = replaced.semaphore.unwrap_or_default();
        entry.semaphore.store(semaphore, Ordering::Relaxed);
        entry.address.store(address, Ordering::Release);
        Ok(())
    }

    /// Takes a jump out that is no longer there.
    pub(super) fn remove(&self, address: u64) {
        for entry in self.entries() {
            let _ = entry
                .address
                .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn entries(&self) -> &[Entry; ENTRIES] {
        // SAFETY: the mapping lives as long as this value, and holds valid entries: all their fields are atomics.
        unsafe { self.entries.as_ref() }
    }

    /// What the forked process does.
    fn wait(&self, parent: &rustix::fd::OwnedFd, pid: i32, memory: &Memory) {
        close_except(&mut [parent.as_raw_fd(), memory.as_raw_fd()]);
        // Not in the group that a terminal interrupts.
        let _ = rustix::process::setsid();
        for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
            // SAFETY: to ignore a signal needs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let mut ended = [PollFd::new(parent, PollFlags::IN)];
        while !matches!(rustix::event::poll(&mut ended, None), Ok(1..)) {}
        let jumps = || {
            self.entries()
                .iter()
                .filter(|entry| entry.address.load(Ordering::Acquire) != 0)
        };
        // Restored while threads run, an instruction could be seen half old and half new.
        while jumps().next().is_some() {
            match Stopped::all(pid) {
                Ok(_stopped) => return jumps().for_each(|entry| restore(memory, entry)),
                Err(Error::Unstoppable { .. } | Error::Traced { .. }) => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // What is still attached is left to it.
        let is_needed = self
            .entries()
            .iter()
            .any(|entry| entry.address.load(Ordering::Acquire) != 0);
        if let (false, Some(process)) = (is_needed, Pid::from_raw(self.process)) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(process), rustix::process::WaitOptions::empty());
        }
        // SAFETY: the mapping is this value's, and no reference to it is left. The other process has its own.
        let _ = unsafe { rustix::mm::munmap(self.entries.as_ptr().cast(), SIZE) };
    }
}

const SIZE: usize = size_of::<[Entry; ENTRIES]>();

/// Closes all files but these: pipes of the other process would never end.
fn close_except(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let mut first = 0;
    for file in kept.iter().map(|&file| file as u32).chain([u32::MAX]) {
        if file > first {
            // SAFETY: this process uses none of these files, and ends without dropping what owns them.
            unsafe { libc::syscall(libc::SYS_close_range, first, file - 1, 0) };
        }
        first = file.saturating_add(1);
    }
}

/// Writes the original bytes, unless others than the jump are there.
fn restore(memory: &Memory, entry: &Entry) {
    let address = entry.address.load(Ordering::Acquire);
    let mut bytes = [0; JUMP];
    if memory.read(address, &mut bytes).is_ok()
        && number(bytes) == entry.jump.load(Ordering::Relaxed)
    {
        let original = entry.original.load(Ordering::Relaxed).to_le_bytes();
        let _ = memory.write(address, &original[..JUMP]);
        // It is raised before the jump is written, and lowered after the bytes are restored.
        match entry.semaphore.load(Ordering::Relaxed) {
            0 => {}
            semaphore => drop(memory.count(semaphore, false)),
        }
    }
}

fn number(bytes: [u8; JUMP]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}
