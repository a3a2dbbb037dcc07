//! The loopback interface, over rtnetlink.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nix::sched::{CloneFlags, unshare};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

use crate::{
    error::{Result, Step},
    helper::Helper,
    stimulus::{Context, Prepared, Stimulus},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "netlink",
        "socket, sendto, recvfrom, close: a request for the loopback interface",
        ask,
    ),
    Stimulus::new(
        "network-link",
        "sendto, recvfrom ×2: the loopback interface of another network namespace, up and down",
        up_and_down,
    ),
];

/// The interface, up. It is set down again by the last one that is dropped, if it was down.
pub(crate) struct Loopback(());

struct Users {
    count: usize,
    was_down: bool,
}

static USERS: Mutex<Users> = Mutex::new(Users {
    count: 0,
    was_down: false,
});

impl Loopback {
    pub(crate) fn up() -> Result<Self> {
        let mut users = users();
        if users.count == 0 {
            let socket = open().step("open a netlink socket")?;
            let up = is_up(&socket).step("look at the loopback interface")?;
            if !up {
                set(&socket, UP).step("set the loopback interface up")?;
            }
            users.was_down = !up;
        }
        users.count += 1;
        Ok(Self(()))
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let mut users = users();
        users.count -= 1;
        if users.count == 0 && users.was_down {
            let _ = open().and_then(|socket| set(&socket, 0));
        }
    }
}

fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| is_up(&open()?).map(drop)))
}

fn up_and_down(_: &Context) -> Result<Prepared> {
    let helper = Helper::start(|| {
        unshare(CloneFlags::CLONE_NEWNET).step("make a network namespace")?;
        let socket = open().step("open a netlink socket")?;
        Ok(move || {
            set(&socket, UP)?;
            set(&socket, 0)
        })
    })?;
    Ok(Prepared::new(move || helper.operate()))
}

// Names and values of the kernel: linux/netlink.h, linux/rtnetlink.h, linux/if.h.
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const UP: u32 = 1;
/// Every network namespace gives this index to its loopback interface.
const INDEX: i32 = 1;
/// Lengths of a `nlmsghdr` and an `ifinfomsg`.
const HEADER: usize = 16;
const LENGTH: usize = HEADER + 16;
const FLAGS: usize = HEADER + 8;

fn open() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    // Protocol 0 is NETLINK_ROUTE.
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn is_up(socket: &OwnedFd) -> io::Result<bool> {
    let answer = request(socket, RTM_GETLINK, NLM_F_REQUEST, 0, 0)?;
    Ok(word(&answer, FLAGS)? & UP != 0)
}

fn set(socket: &OwnedFd, flags: u32) -> io::Result<()> {
    let kind = NLM_F_REQUEST | NLM_F_ACK;
    request(socket, RTM_NEWLINK, kind, flags, UP).map(drop)
}

fn request(
    socket: &OwnedFd,
    kind: u16,
    request: u16,
    flags: u32,
    change: u32,
) -> io::Result<Vec<u8>> {
    let mut message = Vec::with_capacity(LENGTH);
    message.extend((LENGTH as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(request.to_ne_bytes());
    message.extend([0; 8 + 4]); // sequence, port; family and type of the interface
    message.extend(INDEX.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(change.to_ne_bytes());
    send(socket, &message, SendFlags::empty())?;

    // The kernel answers before `send` returns.
    let mut answer = vec![0; 8192];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    answer.truncate(length);
    let kind = word(&answer, 4)?.to_ne_bytes();
    let error = word(&answer, HEADER)?.cast_signed();
    if u16::from_ne_bytes([kind[0], kind[1]]) == NLMSG_ERROR && error != 0 {
        return Err(io::Error::from_raw_os_error(-error));
    }
    Ok(answer)
}

fn word(message: &[u8], at: usize) -> io::Result<u32> {
    message
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes)
        .ok_or_else(|| io::Error::other("short netlink message"))
}
