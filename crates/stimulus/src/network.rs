//! TCP and UDP over the loopback interface. One thread has both ends of each connection.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind,
        connect, getsockname, ipproto, listen, recv, recvfrom, send, sendto, shutdown, socket_with,
        sockopt::{self, Timeout},
    },
};

use crate::{
    error::{Result, Step},
    loopback::Loopback,
    stimulus::{Context, Prepared, Stimulus, expect_bytes, expect_error},
};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const TCP: SocketType = SocketType::STREAM;
const UDP: SocketType = SocketType::DGRAM;
const TIMEOUT: Duration = Duration::from_secs(2);

const TCP_CALLS: &str =
    "socket, connect, accept4, sendto and recvfrom of 64 bytes, shutdown, recvfrom (end), close ×2";
const LISTEN_CALLS: &str = "socket, bind, listen, getsockname, close";
const UDP_CALLS: &str =
    "socket, connect, sendto, recvfrom, sendto (answer), recvfrom, close: 64 bytes each";

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new("tcp4", TCP_CALLS, |_| tcp(V4)),
    Stimulus::new("tcp6", TCP_CALLS, |_| tcp(V6)),
    Stimulus::new(
        "tcp-data4",
        "sendto, recvfrom on a connection: 64 bytes",
        |_| data(V4),
    ),
    Stimulus::new(
        "tcp-data6",
        "sendto, recvfrom on a connection: 64 bytes",
        |_| data(V6),
    ),
    Stimulus::new(
        "tcp-reset",
        "socket, setsockopt (SO_LINGER), connect, accept4, close (reset), recvfrom: ECONNRESET, close",
        reset,
    )
    .failing(),
    Stimulus::new(
        "tcp-refused",
        "socket, connect: ECONNREFUSED, close",
        refused,
    )
    .failing(),
    Stimulus::new("tcp-listen4", LISTEN_CALLS, |_| listening(V4)),
    Stimulus::new("tcp-listen6", LISTEN_CALLS, |_| listening(V6)),
    Stimulus::new("udp4", UDP_CALLS, |_| udp(V4)),
    Stimulus::new("udp6", UDP_CALLS, |_| udp(V6)),
    Stimulus::new(
        "udp-send4",
        "sendto, and recvfrom without waiting: 64 bytes, which a program may drop",
        |_| send_only(V4),
    ),
    Stimulus::new(
        "udp-send6",
        "sendto, and recvfrom without waiting: 64 bytes, which a program may drop",
        |_| send_only(V6),
    ),
    Stimulus::new(
        "icmp",
        "socket (raw), connect, sendto (echo request), recvfrom ×2 (request, reply), close",
        echo,
    ),
    Stimulus::new(
        "socket-options",
        "setsockopt ×3, getsockopt ×3 on a TCP socket",
        options,
    ),
];

/// A socket that is bound to a free port of the loopback interface.
struct Bound {
    socket: OwnedFd,
    address: SocketAddr,
    _loopback: Loopback,
}

impl Bound {
    fn open(ip: IpAddr, kind: SocketType) -> Result<Self> {
        let loopback = Loopback::up()?;
        let socket = open(ip, kind).step("open a socket")?;
        bind(&socket, &SocketAddr::new(ip, 0)).step("bind a socket to the loopback address")?;
        sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT)).step("set a timeout")?;
        let address = getsockname(&socket)
            .and_then(SocketAddr::try_from)
            .step("read a socket's address")?;
        Ok(Self {
            socket,
            address,
            _loopback: loopback,
        })
    }

    fn listen(ip: IpAddr) -> Result<Self> {
        let bound = Self::open(ip, TCP)?;
        listen(&bound.socket, 16).step("listen")?;
        Ok(bound)
    }

    /// Accepted sockets have the listener's timeout.
    fn accept(&self) -> io::Result<OwnedFd> {
        Ok(accept_with(&self.socket, SocketFlags::CLOEXEC)?)
    }

    fn connect(&self) -> io::Result<OwnedFd> {
        self.connect_as(TCP)
    }

    fn connect_as(&self, kind: SocketType) -> io::Result<OwnedFd> {
        let client = open(self.address.ip(), kind)?;
        connect(&client, &self.address)?;
        Ok(client)
    }
}

fn open(ip: IpAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

/// Sends 64 bytes from one socket and receives them from the other.
fn transfer(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    expect_bytes(send(from, &[1; 64], SendFlags::NOSIGNAL)?, 64)?;
    let (_, received) = recv(to, &mut [0; 64], RecvFlags::empty())?;
    expect_bytes(received, 64)
}

fn tcp(ip: IpAddr) -> Result<Prepared> {
    let listener = Bound::listen(ip)?;
    Ok(Prepared::new(move || {
        let client = listener.connect()?;
        let server = listener.accept()?;
        transfer(&client, &server)?;
        shutdown(&client, Shutdown::Write)?;
        let (_, end) = recv(&server, &mut [0; 64], RecvFlags::empty())?;
        expect_bytes(end, 0)
    }))
}

fn data(ip: IpAddr) -> Result<Prepared> {
    let listener = Bound::listen(ip)?;
    let client = listener.connect().step("connect")?;
    let server = listener.accept().step("accept a connection")?;
    Ok(Prepared::new(move || {
        let _keep = &listener;
        transfer(&client, &server)
    }))
}

fn reset(_: &Context) -> Result<Prepared> {
    let listener = Bound::listen(V4)?;
    Ok(Prepared::new(move || {
        let listener = &listener;
        let client = open(V4, TCP)?;
        sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
        connect(&client, &listener.address)?;
        let server = listener.accept()?;
        drop(client);
        let received = recv(&server, &mut [0; 64], RecvFlags::empty());
        expect_error(received, Errno::CONNRESET)
    }))
}

fn refused(_: &Context) -> Result<Prepared> {
    // Bound, but not listening.
    let bound = Bound::open(V4, TCP)?;
    Ok(Prepared::new(move || {
        let bound = &bound;
        let client = open(V4, TCP)?;
        expect_error(connect(&client, &bound.address), Errno::CONNREFUSED)
    }))
}

fn listening(ip: IpAddr) -> Result<Prepared> {
    let loopback = Loopback::up()?;
    Ok(Prepared::new(move || {
        let _keep = &loopback;
        let socket = open(ip, TCP)?;
        bind(&socket, &SocketAddr::new(ip, 0))?;
        listen(&socket, 16)?;
        getsockname(&socket)?;
        Ok(())
    }))
}

fn udp(ip: IpAddr) -> Result<Prepared> {
    let server = Bound::open(ip, UDP)?;
    Ok(Prepared::new(move || {
        let server = &server;
        let client = open(ip, UDP)?;
        connect(&client, &server.address)?;
        expect_bytes(send(&client, &[1; 64], SendFlags::empty())?, 64)?;
        let mut buffer = [0; 64];
        let (_, received, sender) = recvfrom(&server.socket, &mut buffer, RecvFlags::empty())?;
        expect_bytes(received, 64)?;
        let sender = sender.ok_or_else(|| io::Error::other("a datagram without a sender"))?;
        expect_bytes(
            sendto(&server.socket, &buffer, SendFlags::empty(), &sender)?,
            64,
        )?;
        let (_, received) = recv(&client, &mut buffer, RecvFlags::DONTWAIT)?;
        expect_bytes(received, 64)
    }))
}

/// Takes what arrives, so that the next one has room.
fn send_only(ip: IpAddr) -> Result<Prepared> {
    let server = Bound::open(ip, UDP)?;
    let client = server.connect_as(UDP).step("connect a socket")?;
    Ok(Prepared::new(move || {
        let server = &server;
        expect_bytes(send(&client, &[1; 64], SendFlags::empty())?, 64)?;
        match recv(&server.socket, &mut [0; 64], RecvFlags::DONTWAIT) {
            Ok((_, received)) => expect_bytes(received, 64),
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }))
}

fn echo(_: &Context) -> Result<Prepared> {
    /// An ICMP header: type 8, code 0, checksum, identifier 0, number 0.
    const REQUEST: [u8; 8] = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let loopback = Loopback::up()?;
    let open = || {
        let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
        socket_with(family, SocketType::RAW, flags, Some(ipproto::ICMP))
    };
    open().step("open a raw socket")?;
    Ok(Prepared::new(move || {
        let _keep = &loopback;
        let socket = open()?;
        connect(&socket, &SocketAddr::new(V4, 0))?;
        expect_bytes(send(&socket, &REQUEST, SendFlags::empty())?, REQUEST.len())?;
        for _ in 0..2 {
            recv(&socket, &mut [0; 64], RecvFlags::DONTWAIT)?;
        }
        Ok(())
    }))
}

fn options(_: &Context) -> Result<Prepared> {
    let socket = open(V4, TCP).step("open a socket")?;
    Ok(Prepared::new(move || {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_ip_tos(&socket, 0)?;
        sockopt::socket_type(&socket)?;
        sockopt::tcp_nodelay(&socket)?;
        sockopt::ip_tos(&socket)?;
        Ok(())
    }))
}
