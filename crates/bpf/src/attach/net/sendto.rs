//! Datagrams of one byte, sent by a thread. Each goes down through IPv4, out of one end of a veth and, in a
//! softirq on the same CPU before the system call returns, up to where IPv4 drops it as another machine's.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use libbpf_rs::{Link, NetfilterOpts, ProgramMut};
use rustix::{
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, send, socket_with},
};

use super::{
    group::SenderCgroup,
    hook::{self, Hook},
    veth::{HERE, RECEIVING, Receiver, SENDING, THERE, Veth},
};
use crate::{
    attach::{Attach, Attachment, BatchRequest, BatchResult, Driver, Events, Trouble, stopwatch},
    error::{Result, failed},
};

/// NFPROTO_IPV4 and NF_INET_LOCAL_OUT; after all hooks with a predefined priority there (NF_IP_PRI_*).
const LOCAL_OUT: NetfilterOpts = NetfilterOpts {
    protocol_family: 2,
    hooknum: 3,
    priority: 1000,
    flags: 0,
    _non_exhaustive: (),
};

/// A socket, and the veth that its datagrams go through.
pub(in crate::attach) struct Sendto {
    // Closed first: what it sent can't be under way any more.
    socket: OwnedFd,
    /// The socket's; `None` where none could be made, for only one attach type needs it.
    group: Option<SenderCgroup>,
    veth: Veth,
}

impl Sendto {
    pub(in crate::attach) fn start() -> Result<Self> {
        let veth = Veth::make(Driver::Sendto, Receiver::Plain)?;
        let grouped = SenderCgroup::make().and_then(|group| {
            let socket = group.inside(|| socket(&veth))?;
            Ok((socket, Some(group)))
        });
        let (socket, group) = match grouped {
            Ok(made) => made,
            Err(_) => (socket(&veth)?, None),
        };
        // The first one looks its way up and keeps it.
        let arrived = veth.arrived()?;
        push(&socket)?;
        veth.settle(arrived, 1)?;
        Ok(Sendto {
            socket,
            group,
            veth,
        })
    }

    /// The socket's control group. Where there is none yet, the error says why, or there is one now.
    fn group(&mut self) -> Result<&SenderCgroup> {
        let group = match self.group.take() {
            Some(group) => group,
            None => {
                let group = SenderCgroup::make()?;
                self.socket = group.inside(|| socket(&self.veth))?;
                group
            }
        };
        Ok(self.group.insert(group))
    }
}

/// A socket in the veth's namespace that sends to the machine that is not there.
fn socket(veth: &Veth) -> Result<OwnedFd> {
    veth.within(|| {
        let made = || {
            let kind = (AddressFamily::INET, SocketType::DGRAM);
            let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
            bind(&socket, &HERE)?;
            connect(&socket, &THERE)?;
            Ok(socket)
        };
        made().map_err(failed::<Errno>(
            "a socket",
            "making one that sends into a veth",
        ))
    })
}

fn push(socket: &OwnedFd) -> Result<()> {
    let sent = send(socket, &[0], SendFlags::empty());
    sent.map(drop)
        .map_err(failed("a datagram", "sending it into a veth"))
}

impl Events for Sendto {
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        const ATTACHING: &str = "attaching it";
        Driver::Sendto.owns(attach)?;
        let (end, hook) = match attach {
            Attach::CgroupSkb => {
                let group = self.group()?;
                let link = program.attach_cgroup(group.as_fd().as_raw_fd());
                return Ok(Box::new(CgroupAttachment {
                    _link: link.map_err(failed(attach.name(), ATTACHING))?,
                    group: group
                        .as_fd()
                        .try_clone_to_owned()
                        .map_err(failed(attach.name(), ATTACHING))?,
                }));
            }
            Attach::Netfilter => {
                let link = self.veth.within(|| {
                    let link = program.attach_netfilter_with_opts(LOCAL_OUT);
                    link.map_err(failed(attach.name(), ATTACHING))
                })?;
                return Ok(Box::new(link));
            }
            Attach::Tcx => (SENDING, Hook::Egress),
            Attach::XdpGeneric => (RECEIVING, Hook::XdpGeneric),
            // XdpNativeVethSkb: the driver owns no other.
            _ => (RECEIVING, Hook::XdpNative),
        };
        let link = self.veth.within(|| {
            hook::link(program, end.index, hook).map_err(failed(attach.name(), ATTACHING))
        })?;
        Ok(Box::new(link))
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        let arrived = self.veth.arrived()?;
        let driven = stopwatch::time(ask, |events| {
            (0..events).try_for_each(|_| push(&self.socket))
        })?;
        self.veth.settle(arrived, ask.events)?;
        Ok(driven)
    }
}

/// A program on a control group's packets.
struct CgroupAttachment {
    _link: Link,
    group: OwnedFd,
}

impl Attachment for CgroupAttachment {
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let programs = hook::programs_on(self.group.as_fd()).map_err(failed(
            "cgroup_skb",
            "asking what else is attached to the control group",
        ))?;
        Ok((programs != 1).then(|| Trouble {
            check: "programs on the packets of the control group and those above",
            expected: "1".to_owned(),
            got: programs.to_string(),
        }))
    }
}
