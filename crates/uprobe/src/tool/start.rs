//! The tool's start: its process, under the filter from its first instruction on.

#![allow(
    unsafe_code,
    reason = "a child between fork and exec, and its mount namespace"
)]

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    process::{ChildStdin, ChildStdout, Command, ExitStatus},
    sync::mpsc::{Receiver, TryRecvError, channel},
    thread,
};

use rustix::{
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
    thread::{UnshareFlags, unshare_unsafe},
};

use super::{
    error::{Error, Result},
    filter, tracefs,
};

/// A process that was started under the filter.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// Standard input and output, where they are pipes.
    pub(super) pipes: (Option<ChildStdin>, Option<ChildStdout>),
    /// Gets its end.
    ended: Receiver<io::Result<ExitStatus>>,
}

impl Process {
    /// Starts a command. Returns the listener of its filter too.
    pub(super) fn start(mut command: Command) -> Result<(Self, OwnedFd)> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |source| Error::Filter {
            tool: name.clone(),
            source,
        };
        let (mut from_child, to_parent) = io::pipe().map_err(failed)?;
        let (from_parent, mut to_child) = io::pipe().map_err(failed)?;
        let program = filter::program();
        let parent = std::process::id().cast_signed();
        // SAFETY: the closure makes system calls alone, with memory that was there before the fork.
        unsafe {
            command.pre_exec(move || {
                let mut answer = [0];
                let listener = install(&program, parent)?;
                // SAFETY: `getpid` has no conditions.
                let numbers = [libc::getpid(), listener];
                let bytes = numbers.map(i32::to_ne_bytes);
                (&to_parent).write_all(bytes.as_flattened())?;
                // The listener is closed by exec: the parent has its own by then.
                (&from_parent).read_exact(&mut answer)
            });
        }
        let (send, ended) = channel();
        let (send_mounts, mounts) = channel();
        // The process dies with the thread that started it, which therefore waits for its end.
        let (send_pipes, pipes) = channel();
        thread::spawn(move || {
            // Of this thread and of what it starts alone.
            let separated = unshare_mounts().and_then(|()| tracefs::protect());
            let is_separate = separated.is_ok();
            let _ = send_mounts.send(separated);
            if !is_separate {
                return;
            }
            let started = command.spawn();
            drop(command);
            let ended = started.and_then(|mut child| {
                let _ = send_pipes.send((child.stdin.take(), child.stdout.take()));
                child.wait()
            });
            let _ = send.send(ended);
        });
        let separated = mounts
            .recv()
            .unwrap_or(Err(io::ErrorKind::BrokenPipe.into()));
        separated.map_err(|source| Error::Mounts {
            tool: name.clone(),
            source,
        })?;
        let mut bytes = [0; 8];
        if from_child.read_exact(&mut bytes).is_err() {
            // It ended before the filter was there.
            return Err(match ended.recv() {
                Ok(Err(source)) => failed(source),
                _ => failed(io::ErrorKind::BrokenPipe.into()),
            });
        }
        let number = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
        let (pid, listener) = (number(&bytes[..4]), number(&bytes[4..]));
        let listener = take(pid, listener).map_err(failed)?;
        to_child.write_all(&[0]).map_err(failed)?;
        let Ok(pipes) = pipes.recv() else {
            let source = match ended.recv() {
                Ok(Err(source)) => source,
                _ => io::ErrorKind::BrokenPipe.into(),
            };
            return Err(Error::Start { tool: name, source });
        };
        Ok((Process { pid, pipes, ended }, listener))
    }

    /// Returns how it ended, if it has.
    pub(super) fn end(&self) -> Option<io::Result<ExitStatus>> {
        match self.ended.try_recv() {
            Ok(ended) => Some(ended),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// A file of another process, by its number there.
fn take(pid: i32, number: RawFd) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Gives this thread a mount namespace of its own.
fn unshare_mounts() -> io::Result<()> {
    // SAFETY: it unshares no table of open files, which other threads may rely on.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?)
}

/// Installs the filter for this process, which dies with the thread of its parent that made it. Returns the listener.
fn install(program: &[libc::sock_filter], parent: i32) -> io::Result<RawFd> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: the kernel reads the filter, which lives as long as the call.
    let listener = unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // It may have been killed before that.
        if libc::getppid() != parent {
            libc::_exit(1);
        }
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(listener as RawFd)
}

/// Takes what `fd` is of out of a process, with its own number here.
pub(super) fn adopt(fd: RawFd) -> OwnedFd {
    debug_assert!(fd.as_raw_fd() >= 0);
    // SAFETY: the caller has just got it from the kernel, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
