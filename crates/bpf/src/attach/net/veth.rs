//! A veth in its own namespace, which carries only what is sent here.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    thread,
    time::{Duration, Instant},
};

use super::gro;
use crate::{
    attach::Driver,
    error::{Error, Result, failed},
    feature::Feature,
    net::{Mac, Namespace, Netlink, VethEnd},
};

/// The sending end, the first interface of its namespace after the loopback one.
pub(super) const SENDING: VethEnd<'static> = VethEnd {
    index: 2,
    name: "sending",
    mac: [2, 0, 0, 0, 0, 1],
};
/// The receiving end.
pub(super) const RECEIVING: VethEnd<'static> = VethEnd {
    index: 3,
    name: "receiving",
    mac: [2, 0, 0, 0, 0, 2],
};
/// The frames' destination: a machine that does not exist. The receiving end takes them for another's.
pub(super) const STRANGER: Mac = [2, 0, 0, 0, 0, 3];

/// A network reserved for documentation (RFC 5737). Port 9 is discard (RFC 863).
pub(super) const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);
pub(super) const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9);
const NETWORK_BITS: u8 = 24;

/// Longest time that packets may be under way after a batch. A deferred softirq waits for its thread's turn.
const ARRIVAL: Duration = Duration::from_millis(500);

/// The kind of veth that a driver needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// As veths are made.
    Plain,
    /// With its own NAPI: it takes frames that are not yet the kernel's own structure.
    Napi,
}

pub(super) struct Veth {
    namespace: Namespace,
    netlink: Netlink,
    driver: Driver,
}

/// A count of packets; `None` where the kernel keeps none.
#[derive(Clone, Copy)]
pub(super) struct PacketCount(Option<u64>);

impl Veth {
    /// Makes one, both ends up.
    pub(super) fn make(driver: Driver, receiver: Receiver) -> Result<Self> {
        Feature::Veth.require()?;
        let namespace = Namespace::make()?;
        let netlink = namespace.within(|| {
            let netlink = Netlink::open().map_err(failed("netlink", "opening a socket"))?;
            let step = |action| failed("veth", action);
            netlink
                .make_veth([SENDING, RECEIVING], None)
                .map_err(step("making it"))?;
            if receiver == Receiver::Napi {
                gro::turn_on(RECEIVING.name).map_err(step("turning GRO on"))?;
            }
            netlink
                .add_address(SENDING.index, *HERE.ip(), NETWORK_BITS)
                .map_err(step("giving it an address"))?;
            // In this order: an end that comes up before its peer drops what is sent until a worker of the
            // kernel has seen that the peer is there.
            for end in [RECEIVING, SENDING] {
                netlink.set_up(end.index).map_err(step("setting it up"))?;
            }
            netlink
                .add_neighbour(SENDING.index, *THERE.ip(), STRANGER)
                .map_err(step("naming its neighbour"))?;
            Ok(netlink)
        })?;
        Ok(Veth {
            namespace,
            netlink,
            driver,
        })
    }

    /// Does `work` with the calling thread in the veth's namespace.
    pub(super) fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.namespace.within(work)
    }

    /// Packets that have come to the end of their way so far; asked before a batch.
    pub(super) fn arrived(&self) -> Result<PacketCount> {
        self.dropped().map(PacketCount)
    }

    /// Waits until `sent` packets have come to the end of their way since `before`. They have, as a rule:
    /// the softirq that takes them runs on the same CPU before the sender goes on.
    pub(super) fn settle(&self, before: PacketCount, sent: u64) -> Result<()> {
        let begun = Instant::now();
        loop {
            let (PacketCount(Some(before)), Some(now)) = (before, self.dropped()?) else {
                return Ok(());
            };
            let arrived = now.saturating_sub(before);
            if arrived == sent {
                return Ok(());
            }
            if begun.elapsed() > ARRIVAL {
                return Err(Error::Refused(format!(
                    "{}: of {sent} packets, {arrived} reached the other end of the veth in time; \
                     the machine may be too busy for its softirqs. Try again, or with fewer events",
                    self.driver
                )));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The number of frames dropped at the receiving end as another machine's: the last step of their way.
    fn dropped(&self) -> Result<Option<u64>> {
        self.netlink
            .strangers_dropped(RECEIVING.index)
            .map_err(failed("veth", "asking how many packets came"))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Its namespace would take it along, at a time of the kernel's own; a batch of another process may
        // run by then.
        let _ = self.netlink.delete(SENDING.index);
    }
}
