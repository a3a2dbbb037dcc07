//! The calls that a tool waits in, and their answers (`seccomp_unotify(2)`).

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{
    io,
    os::{
        fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
        raw::c_void,
    },
    ptr,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes for what a newer kernel may have more in a notification.
const SPARE: usize = 256;

/// The listener of a filter.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notification {
    id: u64,
    /// The thread that waits.
    pub(super) thread: i32,
    /// The system call.
    pub(super) call: i64,
    pub(super) arguments: [u64; 6],
}

/// State of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A call waits.
    Call,
    /// Nothing came in the time.
    Nothing,
    /// No process has the filter any more.
    Over,
}

impl Listener {
    pub(super) fn new(fd: OwnedFd) -> Self {
        let listener = Listener { fd };
        // The supervisor runs where the tool has just run (Linux 6.6): a call costs half as much. Others can't.
        let _ = listener.ask(
            libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
            ptr::without_provenance_mut(1),
        );
        listener
    }

    /// Waits until a call waits, or something else is there, for so long.
    pub(super) fn wait<'a>(
        &'a self,
        time: Duration,
        others: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Wait {
        let time = Timespec::try_from(time).ok();
        let mut polled = vec![PollFd::new(&self.fd, PollFlags::IN)];
        polled.extend(others.map(|other| PollFd::from_borrowed_fd(other, PollFlags::IN)));
        if poll(&mut polled, time.as_ref()).is_err() {
            return Wait::Nothing;
        }
        let events = polled[0].revents();
        if events.contains(PollFlags::IN) {
            Wait::Call
        } else if events.contains(PollFlags::HUP) {
            Wait::Over
        } else {
            Wait::Nothing
        }
    }

    /// The next call; `None` where its thread has just been killed.
    pub(super) fn receive(&self) -> Option<Notification> {
        #[repr(C)]
        struct Room(libc::seccomp_notif, [u8; SPARE]);
        // SAFETY: numbers alone, for which zero is a value.
        let mut room: Room = unsafe { std::mem::zeroed() };
        let into = (&raw mut room).cast();
        self.ask(libc::SECCOMP_IOCTL_NOTIF_RECV, into).ok()?;
        let Room(one, _) = room;
        Some(Notification {
            id: one.id,
            thread: one.pid.cast_signed(),
            call: one.data.nr.into(),
            arguments: one.data.args,
        })
    }

    /// Returns whether the call still waits: what was read of its process was that process's.
    pub(super) fn is_waiting(&self, call: &Notification) -> bool {
        let mut id = call.id;
        let id = (&raw mut id).cast();
        self.ask(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, id).is_ok()
    }

    /// Has the kernel do the call.
    pub(super) fn go_on(&self, call: &Notification) {
        const GO_ON: u32 = 1;
        self.send(call, 0, 0, GO_ON);
    }

    /// Answers the call.
    pub(super) fn answer(&self, call: &Notification, answer: io::Result<i64>) {
        match answer {
            Ok(value) => self.send(call, value, 0, 0),
            Err(error) => {
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                self.send(call, 0, -error, 0);
            }
        }
    }

    /// Answers the call with a new file of its process.
    pub(super) fn give(&self, call: &Notification, file: BorrowedFd<'_>, closes_on_exec: bool) {
        let mut addition = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if closes_on_exec {
                libc::O_CLOEXEC as u32
            } else {
                0
            },
        };
        let given = self.ask(libc::SECCOMP_IOCTL_NOTIF_ADDFD, (&raw mut addition).cast());
        if let Err(error) = given {
            self.answer(call, Err(error));
        }
    }

    fn send(&self, call: &Notification, value: i64, error: i32, flags: u32) {
        let mut response = libc::seccomp_notif_resp {
            id: call.id,
            val: value,
            error,
            flags,
        };
        // It fails where the thread was killed, which needs no answer.
        let _ = self.ask(libc::SECCOMP_IOCTL_NOTIF_SEND, (&raw mut response).cast());
    }

    fn ask(&self, request: libc::Ioctl, argument: *mut c_void) -> io::Result<RawFd> {
        // SAFETY: the argument is what the request takes, of this function's callers above.
        let answer = unsafe { libc::ioctl(self.fd.as_raw_fd(), request, argument) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(answer)
    }
}
