//! The kernel half of an agent that reconstructs requests: the first bytes of every call by which a server reads or
//! writes a connection. The programs, and what they see, are in `bpf/l7.bpf.c`.

mod kernel;
mod user;

use std::{cell::RefCell, fs, os::linux::fs::MetadataExt as _, rc::Rc};

use crate::{Space, error::Result, plain, skel::l7::types};
use kernel::KernelL7;
use user::UserL7;

/// The first process namespace of a machine (`PROC_PID_INIT_INO` of the kernel): its numbers are those
/// that programs see.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The choice of what is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L7Watch {
    /// System calls on sockets.
    pub sockets: bool,
    /// Go's `crypto/tls`, and where the programs for it run.
    pub tls: Option<Space>,
    /// Which goroutine each thread runs: a uprobe of the kernel.
    pub goroutines: bool,
}

/// The effect of a call on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Got bytes from it.
    Read,
    /// Sent bytes.
    Write,
    /// Closed it.
    Close,
}

/// An open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The process that has it.
    pub process: u32,
    /// True for one of `crypto/tls`; the socket under it is another.
    pub tls: bool,
    /// Distinguishes it from others of the process.
    pub number: u64,
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub struct L7Call<'a> {
    /// On what.
    pub connection: ConnectionId,
    /// The effect on the connection.
    pub act: CallKind,
    /// When it returned (CLOCK_MONOTONIC).
    pub time_ns: u64,
    /// Who made it, where that is known: always in `crypto/tls`, else with [`L7Watch::goroutines`].
    pub goroutine: Option<u64>,
    /// Bytes that it moved.
    pub length: u64,
    /// The first 512 of them.
    pub payload: &'a [u8],
}

/// The functions of a Go program that are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFunctions {
    /// `crypto/tls.(*Conn).Read`.
    pub read: GoFunction,
    /// The same of `Write`.
    pub write: GoFunction,
    /// The same of `Close`.
    pub close: GoFunction,
    /// `runtime.casgstatus`.
    pub status: GoFunction,
}

/// A function of a Go program, in bytes from the start of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoFunction {
    /// Name in the program.
    pub name: String,
    /// First instruction.
    pub offset: usize,
    /// Length, with what the linker put behind it.
    pub bytes: usize,
    /// Return instructions.
    pub returns: Vec<usize>,
}

/// Counts since the programs were attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct L7Counts {
    /// Calls that are not reported, because the buffer was full or a program was skipped.
    pub lost: u64,
    /// Times that a goroutine began to run, with [`L7Watch::goroutines`].
    pub switches: u64,
}

/// The programs. Dropping them detaches them.
pub struct L7 {
    kernel: Option<KernelL7>,
    user: Option<UserL7>,
}

impl L7 {
    /// Loads them; `take` is given every call, in [`L7::take`].
    pub fn load(watch: L7Watch, take: impl FnMut(&L7Call<'_>) + 'static) -> Result<Self> {
        let take = Rc::new(RefCell::new(take));
        let taker = || {
            let take = Rc::clone(&take);
            move |call: &L7Call<'_>| (take.borrow_mut())(call)
        };
        let in_kernel = L7Watch {
            tls: watch.tls.filter(|space| *space == Space::Kernel),
            ..watch
        };
        Ok(L7 {
            kernel: (in_kernel != L7Watch::default())
                .then(|| KernelL7::load(in_kernel, taker()))
                .transpose()?,
            user: (watch.tls == Some(Space::User))
                .then(|| UserL7::load(taker()))
                .transpose()?,
        })
    }

    /// Attaches them for these processes; each with the functions of its program, where more than sockets
    /// are watched.
    pub fn attach(&mut self, processes: &[(u32, ServerFunctions)]) -> Result<()> {
        if let Some(kernel) = &mut self.kernel {
            kernel.attach(processes)?;
        }
        if let Some(user) = &mut self.user {
            user.attach(processes)?;
        }
        Ok(())
    }

    /// Reads the calls that are there.
    pub fn take(&mut self) -> Result<()> {
        if let Some(kernel) = &self.kernel {
            kernel.take()?;
        }
        if let Some(user) = &mut self.user {
            user.take()?;
        }
        Ok(())
    }

    /// Detaches them, reads the remaining events, and returns the counts since they were attached. Waits a
    /// while for connections accepted meanwhile to close: requests of a client that has gone are read and
    /// answered all the same.
    pub fn detach(&mut self) -> Result<L7Counts> {
        let mut all = L7Counts::default();
        // With what the kernel sees, it is known when the last connection closes.
        if let Some(kernel) = &mut self.kernel {
            kernel.wait_for_closes()?;
        } else if let Some(user) = &mut self.user {
            user.wait_for_silence()?;
        }
        for counts in [
            self.user.as_mut().map(UserL7::detach),
            self.kernel.as_mut().map(KernelL7::detach),
        ] {
            let counts = counts.transpose()?.unwrap_or_default();
            all.lost += counts.lost;
            all.switches += counts.switches;
        }
        Ok(all)
    }
}

/// Adds what one CPU, or one thread, counted.
fn add_counts(all: &mut L7Counts, count: &[u8]) {
    if let Some(count) = plain::read::<types::l7_count>(count) {
        all.lost += count.lost;
        all.switches += count.switches;
    }
}

/// The process namespace that this program is in, as device and inode; `None` in the machine's own.
pub(crate) fn namespace() -> Option<(u64, u64)> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    (namespace.st_ino() != FIRST_NAMESPACE).then(|| (namespace.st_dev(), namespace.st_ino()))
}

/// An event as a call.
fn call(event: &types::l7_event) -> L7Call<'_> {
    L7Call {
        connection: ConnectionId {
            process: event.process,
            tls: event.tls != 0,
            number: event.connection,
        },
        act: match event.kind {
            types::l7_kind::L7_READ => CallKind::Read,
            types::l7_kind::L7_WRITE => CallKind::Write,
            _ => CallKind::Close,
        },
        time_ns: event.time_ns,
        goroutine: (event.goroutine != 0).then_some(event.goroutine),
        length: event.length,
        payload: &event.payload[..(event.kept as usize).min(event.payload.len())],
    }
}
