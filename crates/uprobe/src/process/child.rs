//! A fork of this process that serves it, and has nothing else to do with it.

#![allow(
    unsafe_code,
    reason = "a process is forked, files are closed, and signals ignored"
)]

use rustix::{
    fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
    process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, waitpid},
};
use std::{io, panic};

/// A process that was forked. It lives on where this is dropped.
#[derive(Debug)]
pub struct Child(Pid);

impl Child {
    /// Forks this process. The new one leaves what belongs to the old one: its files but those in `kept`, whose
    /// pipes and links would never end, and what a terminal interrupts. Then it does `work`, and ends.
    ///
    /// `work` must need no other thread of this process.
    pub fn fork(kept: &[BorrowedFd<'_>], work: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: the child calls nothing that needs this process's other threads: files and memory, whose allocator
        // glibc makes usable in it. It never returns from here.
        let process = unsafe { libc::fork() };
        if process == 0 {
            let work = panic::AssertUnwindSafe(|| {
                separate(kept);
                work();
            });
            let status = i32::from(panic::catch_unwind(work).is_err());
            // SAFETY: ends the process without any of the handlers that belong to the other one.
            unsafe { libc::_exit(status) };
        }
        match Pid::from_raw(process) {
            Some(child) if process > 0 => Ok(Child(child)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the number.
    pub fn pid(&self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Ends it by SIGKILL, and waits for that. Once it was reaped, its number may be another process's.
    pub fn kill(&self) {
        if let Ok(None) = waitpid(Some(self.0), WaitOptions::NOHANG) {
            let _ = kill_process(self.0, Signal::KILL);
            self.reap();
        }
    }

    /// Waits for its end.
    pub fn reap(&self) {
        let _ = waitpid(Some(self.0), WaitOptions::empty());
    }
}

/// This process, for a child that is to know when it ends.
pub(crate) fn this_process() -> io::Result<OwnedFd> {
    let this = rustix::process::getpid();
    Ok(rustix::process::pidfd_open(this, PidfdFlags::empty())?)
}

fn separate(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<RawFd> = kept.iter().map(|file| file.as_raw_fd()).collect();
    close_except(&mut kept);
    let _ = rustix::process::setsid();
    // Handlers are the other process's: one of SIGCHLD may wait for whatever ends, and would take the stops of a traced process.
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default action needs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    for signal in [libc::SIGINT, libc::SIGHUP, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: to ignore a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Closes all files but these.
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
