//! Network interfaces: ends of veths in a network namespace of this process's own.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::{Family, Mechanism, SiteLink, programs::SitePrograms};
use crate::{
    attach::net::hook::{self, Hook},
    error::{Result, failed},
    net::{Namespace, Netlink, VethEnd},
};

/// The first interface of a namespace after the loopback one.
const FIRST: u32 = 2;

/// How long a frame may be under way. A deferred softirq waits for its thread's turn.
const ARRIVAL: Duration = Duration::from_millis(500);

/// A frame that no protocol takes: for everyone, of the type for experiments within a network (IEEE 802).
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let mut at = 0;
    while at < 6 {
        frame[at] = 0xff;
        at += 1;
    }
    frame[6] = 2;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

/// Interfaces, two for each veth.
pub(super) struct Interfaces {
    mechanism: Mechanism,
    count: u32,
    /// For whole frames, made in the namespace.
    socket: OwnedFd,
    namespace: Namespace,
}

impl Interfaces {
    /// Makes so many, and has them send and receive.
    pub(super) fn make(mechanism: Mechanism, count: usize) -> Result<Self> {
        let count = count as u32;
        let namespace = Namespace::make()?;
        let step = |action| failed("veth", action);
        let socket = namespace.within(|| {
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
            socket().map_err(failed("a socket for frames", "opening it"))
        })?;
        Ok(Interfaces {
            mechanism,
            count,
            socket,
            namespace,
        })
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

    /// By each interface's own account of what is attached to it.
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

    /// Sends a frame through each interface: out of it, or into it from its other end.
    fn fire(&self, programs: &SitePrograms, attached: bool) -> Result<u64> {
        let before = programs.hits();
        for index in self.indexes() {
            // An even one's other end is the next one.
            let from = match self.mechanism {
                Mechanism::Tcx => index,
                _ => index ^ 1,
            };
            send(&self.socket, from).map_err(failed("a frame", "sending it"))?;
        }
        let events = u64::from(self.count);
        let begun = Instant::now();
        while attached && programs.hits() - before < events && begun.elapsed() < ARRIVAL {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(events)
    }
}

fn mac(index: u32) -> [u8; 6] {
    let [a, b, c, d] = index.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// One that receives nothing.
fn socket() -> rustix::io::Result<OwnedFd> {
    socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends the frame out of an interface.
fn send(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0x88b5u16.to_be(),
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
            FRAME.as_ptr().cast(),
            FRAME.len(),
            0,
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if sent == FRAME.len() as isize {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
