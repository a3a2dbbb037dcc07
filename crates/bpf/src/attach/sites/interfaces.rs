//! Network interfaces: ends of veths in a network namespace of this process's own.

#![allow(unsafe_code)]

use std::{
    cell::Cell,
    collections::BTreeSet,
    io,
    num::NonZeroU32,
    os::fd::{AsRawFd as _, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with},
};

use super::{Family, Mechanism, SiteLink, programs::SitePrograms};
use crate::{
    attach::net::hook::{self, Hook},
    error::{Result, failed, lacks},
    net::{Namespace, Netlink, VethEnd},
};

/// The first interface of a namespace after the loopback one.
const FIRST: u32 = 2;

/// Longest time that a frame may be under way. A deferred softirq waits for its thread's turn.
const ARRIVAL: Duration = Duration::from_secs(5);

/// Interval between looks for a frame.
const POLL: Duration = Duration::from_millis(1);

/// Frames that are under way at once: fewer than a socket and a CPU's queue have room for.
const AT_ONCE: usize = 64;

/// The frames' EtherType: for experiments within a network (IEEE 802).
const TYPE: u16 = 0x88b5;

type Frame = [u8; 60];

/// Interfaces, two for each veth.
pub(super) struct Interfaces {
    mechanism: Mechanism,
    count: u32,
    /// For whole frames, made in the namespace.
    sender: OwnedFd,
    /// For those that come in at any interface and that no program drops.
    receiver: OwnedFd,
    /// Rounds of frames sent through all interfaces: late frames of an earlier round do not count.
    round: Cell<u32>,
    namespace: Namespace,
}

impl Interfaces {
    /// Makes so many, and has them send and receive.
    pub(super) fn make(mechanism: Mechanism, count: usize) -> Result<Self> {
        let count = count as u32;
        let namespace = Namespace::make()?;
        let step = |action| failed("veth", action);
        let [sender, receiver] = namespace.within(|| {
            let netlink = Netlink::open().map_err(step("opening a socket for it"))?;
            for first in (FIRST..FIRST + count).step_by(2) {
                let names = [first, first + 1].map(|index| format!("site{index}"));
                let ends = [0, 1].map(|end| VethEnd {
                    index: first + end,
                    name: &names[end as usize],
                    mac: mac(first + end),
                });
                netlink.make_veth(ends, None).map_err(step("making it"))?;
                for end in ends {
                    netlink.set_up(end.index).map_err(step("setting it up"))?;
                }
            }
            let sockets = socket(None).and_then(|sender| Ok([sender, socket(Some(TYPE))?]));
            sockets.map_err(failed("a socket for frames", "opening it"))
        })?;
        let made = Interfaces {
            mechanism,
            count,
            sender,
            receiver,
            round: Cell::new(0),
            namespace,
        };
        made.wait_until_up()?;
        Ok(made)
    }

    /// An interface drops frames until the kernel has noted that its other end is up, behind the caller's back.
    fn wait_until_up(&self) -> Result<()> {
        let begun = Instant::now();
        let mut silent: Vec<u32> = self.indexes().collect();
        while begun.elapsed() < ARRIVAL {
            let mut came = BTreeSet::new();
            for some in silent.chunks(AT_ONCE) {
                self.send(some)?;
                thread::sleep(POLL);
                came.extend(self.arrived()?);
            }
            silent.retain(|index| !came.contains(index));
            if silent.is_empty() {
                return Ok(());
            }
        }
        Err(lacks(
            "a veth",
            "frame that came through after it was set up",
        ))
    }

    /// Sends a frame through each of these interfaces: out of it, or into it from its other end.
    fn send(&self, indexes: &[u32]) -> Result<()> {
        for &index in indexes {
            let from = match self.mechanism {
                Mechanism::Tcx => index,
                _ => other_end(index),
            };
            let frame = frame(self.round.get(), index);
            send(&self.sender, from, &frame).map_err(failed("a frame", "sending it"))?;
        }
        Ok(())
    }

    /// The interfaces whose frames of this round have come in since this was last asked, and no program dropped them.
    fn arrived(&self) -> Result<Vec<u32>> {
        let mut arrived = Vec::new();
        let mut got: Frame = [0; _];
        loop {
            match recv(&self.receiver, &mut got[..], RecvFlags::DONTWAIT) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(arrived),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed("a frame", "receiving it")(error)),
            }
            let (round, index) = told(&got);
            arrived.extend((round == self.round.get()).then_some(index));
        }
    }

    fn indexes(&self) -> std::ops::Range<u32> {
        FIRST..FIRST + self.count
    }

    fn hook(&self) -> Hook {
        match self.mechanism {
            Mechanism::Tcx => Hook::Egress,
            _ => Hook::XdpNative,
        }
    }
}

impl Family for Interfaces {
    fn load(&self) -> Result<SitePrograms> {
        SitePrograms::load(self.mechanism, None)
    }

    fn attach(&self, programs: &SitePrograms, links: &mut Vec<SiteLink>) -> Result<()> {
        let program = programs.program()?;
        let hook = self.hook();
        self.namespace.within(|| {
            for index in self.indexes() {
                let link = hook::link(&program, index, hook);
                links.push(SiteLink::Plain(
                    link.map_err(failed(self.mechanism.name(), "attaching it"))?,
                ));
            }
            Ok(())
        })
    }

    /// Sums each interface's own account of what is attached to it.
    fn shown(&self, _: &SitePrograms) -> Result<u64> {
        let hook = self.hook();
        let asked = |action| failed(self.mechanism.name(), action);
        self.namespace.within(|| {
            let programs = self.indexes().map(|index| hook::programs_at(index, hook));
            let programs: io::Result<Vec<u32>> = programs.collect();
            let programs = programs.map_err(asked("asking an interface what is attached to it"))?;
            Ok(programs.into_iter().map(u64::from).sum())
        })
    }

    /// Sends a frame through each interface, and waits until each has come to the program or to the other end. While nothing
    /// is attached, events are the frames that came through: that no program runs would be no news of one that never came.
    fn fire(&self, programs: &SitePrograms, attached: bool) -> Result<u64> {
        self.round.set(self.round.get() + 1);
        let mut events = 0;
        let indexes: Vec<u32> = self.indexes().collect();
        for some in indexes.chunks(AT_ONCE) {
            let before = programs.hits();
            self.send(some)?;
            let sent = some.len() as u64;
            let mut arrived = 0;
            let begun = Instant::now();
            loop {
                arrived += self.arrived()?.len() as u64;
                let ended = match self.mechanism {
                    Mechanism::Tcx => arrived,
                    // This program drops what it sees.
                    _ => arrived + (programs.hits() - before),
                };
                if ended >= sent || begun.elapsed() > ARRIVAL {
                    break;
                }
                thread::sleep(POLL);
            }
            events += if attached { sent } else { arrived };
        }
        Ok(events)
    }
}

/// The interface at the other end of a veth. An even one's is the next one.
fn other_end(index: u32) -> u32 {
    index ^ 1
}

fn mac(index: u32) -> [u8; 6] {
    let [a, b, c, d] = index.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// One that receives frames of that type, from all interfaces of the calling thread's namespace; or none.
fn socket(receives: Option<u16>) -> rustix::io::Result<OwnedFd> {
    let protocol = receives.map(|kind| u32::from(kind.to_be()));
    socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        protocol.and_then(NonZeroU32::new).map(Protocol::from_raw),
    )
}

/// A frame for everyone that no protocol takes. It says in which round it was sent, and for which interface.
fn frame(round: u32, index: u32) -> Frame {
    let mut frame = [0; _];
    let head: [&[u8]; 5] = [
        &[0xff; 6],
        &[2, 0, 0, 0, 0, 0],
        &TYPE.to_be_bytes(),
        &round.to_be_bytes(),
        &index.to_be_bytes(),
    ];
    let head = head.concat();
    frame[..head.len()].copy_from_slice(&head);
    frame
}

/// Reads a frame's content: the round, and the interface.
fn told(frame: &Frame) -> (u32, u32) {
    let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| frame[at + byte]));
    (number(14), number(18))
}

/// Sends a frame out of an interface.
fn send(socket: &OwnedFd, interface: u32, frame: &Frame) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: TYPE.to_be(),
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0xff; 8],
    };
    // SAFETY: frame and address outlive the call, and are as long as is said.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if sent == frame.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
