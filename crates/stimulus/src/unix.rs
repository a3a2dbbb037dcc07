//! Sockets of the Unix domain.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    time::Duration,
};

use nix::sys::socket::{MsgFlags, MultiHeaders, sendmmsg};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, accept_with, bind, connect, listen,
    recv, recvmsg, send, sendmsg, sendto, socket_with, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};
use tempfile::TempDir;

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const UNIX: AddressFamily = AddressFamily::UNIX;
const STREAM: SocketType = SocketType::STREAM;
const DATAGRAM: SocketType = SocketType::DGRAM;
const CLOEXEC: SocketFlags = SocketFlags::CLOEXEC;
const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "unix-socket",
        "socket, connect, accept4, sendto and recvfrom of 64 bytes, close ×2",
        stream,
    ),
    Stimulus::new(
        "unix-accept",
        "socket, connect, accept, close ×2",
        old_accept,
    ),
    Stimulus::new(
        "unix-datagram",
        "socket, sendto, recvfrom of 64 bytes, close",
        datagram,
    ),
    Stimulus::new(
        "socketpair",
        "socketpair, sendto and recvfrom of 64 bytes, close ×2",
        pair,
    ),
    Stimulus::new(
        "several-messages",
        "socketpair, sendmmsg of two times 64 bytes, recvfrom ×2, close ×2",
        several_messages,
    ),
    Stimulus::new(
        "fd-passing",
        "sendmsg, recvmsg (SCM_RIGHTS), close",
        pass_file,
    ),
];

/// A socket to connect to, and the folder that it is in.
struct Listener {
    _folder: TempDir,
    address: SocketAddrUnix,
    socket: OwnedFd,
}

impl Listener {
    fn new(context: &Context) -> Result<Self> {
        let folder = context.temporary_folder()?;
        let address = SocketAddrUnix::new(folder.path().join("socket")).step("name a socket")?;
        let socket = socket_with(UNIX, STREAM, CLOEXEC, None).step("open a socket")?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT)).step("set a timeout")?;
        bind(&socket, &address).step("bind a socket")?;
        listen(&socket, 16).step("listen")?;
        Ok(Listener {
            _folder: folder,
            address,
            socket,
        })
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        let client = socket_with(UNIX, STREAM, CLOEXEC, None)?;
        connect(&client, &self.address)?;
        Ok(client)
    }
}

fn old_accept(context: &Context) -> Result<Prepared> {
    let listener = Listener::new(context)?;
    Ok(Prepared::new(move || {
        let _client = listener.connect()?;
        Ok(accept(&listener.socket).map(drop)?)
    }))
}

fn stream(context: &Context) -> Result<Prepared> {
    let listener = Listener::new(context)?;
    Ok(Prepared::new(move || {
        let client = listener.connect()?;
        let server = accept_with(&listener.socket, CLOEXEC)?;
        expect_bytes(send(&client, &[1; 64], SendFlags::NOSIGNAL)?, 64)?;
        let (_, received) = recv(&server, &mut [0; 64], RecvFlags::DONTWAIT)?;
        expect_bytes(received, 64)
    }))
}

fn datagram(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let address = SocketAddrUnix::new(folder.path().join("socket")).step("name a socket")?;
    let server = socket_with(UNIX, DATAGRAM, CLOEXEC, None).step("open a socket")?;
    bind(&server, &address).step("bind a socket")?;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        let client = socket_with(UNIX, DATAGRAM, CLOEXEC, None)?;
        expect_bytes(
            sendto(&client, &[1; 64], SendFlags::DONTWAIT, &address)?,
            64,
        )?;
        let (_, received) = recv(&server, &mut [0; 64], RecvFlags::DONTWAIT)?;
        expect_bytes(received, 64)
    }))
}

fn pair(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let (a, b) = socketpair(UNIX, STREAM, CLOEXEC, None)?;
        expect_bytes(send(&a, &[1; 64], SendFlags::NOSIGNAL)?, 64)?;
        let (_, received) = recv(&b, &mut [0; 64], RecvFlags::DONTWAIT)?;
        expect_bytes(received, 64)
    }))
}

fn several_messages(_: &Context) -> Result<Prepared> {
    let message = [1; 64];
    Ok(Prepared::new(move || {
        let (one, other) = socketpair(UNIX, DATAGRAM, CLOEXEC, None)?;
        let mut headers = MultiHeaders::<()>::preallocate(2, None);
        let messages = [[IoSlice::new(&message)], [IoSlice::new(&message)]];
        let socket = one.as_raw_fd();
        let nowhere = [None; 2];
        sendmmsg(
            socket,
            &mut headers,
            &messages,
            nowhere,
            [],
            MsgFlags::empty(),
        )?;
        for _ in &messages {
            let (_, received) = recv(&other, &mut [0; 64], RecvFlags::DONTWAIT)?;
            expect_bytes(received, 64)?;
        }
        Ok(())
    }))
}

fn pass_file(_: &Context) -> Result<Prepared> {
    let (a, b) = socketpair(UNIX, STREAM, CLOEXEC, None).step("make a pair of sockets")?;
    Ok(Prepared::new(move || {
        let files = [a.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let message = [IoSlice::new(&[1])];
        expect_bytes(sendmsg(&a, &message, &mut control, SendFlags::DONTWAIT)?, 1)?;

        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut message = [0];
        let mut parts = [IoSliceMut::new(&mut message)];
        let received = recvmsg(&b, &mut parts, &mut control, flags)?;
        // Dropping the buffer closes the file.
        expect_bytes(received.bytes, 1)
    }))
}
