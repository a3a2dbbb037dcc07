//! A veth in a namespace of its own, with nothing on it but what is sent here.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::{Duration, Instant},
};

use super::{
    Namespace, Netlink, failed, gro,
    netlink::{End, Mac},
};
use crate::{
    attach::Driver,
    error::{Error, Result},
    feature::Feature,
};

/// Where packets are sent, the first interface of its namespace after the loopback one.
pub(super) const SENDING: End = End {
    index: 2,
    name: "sending",
    mac: [2, 0, 0, 0, 0, 1],
};
/// Where they come out.
pub(super) const RECEIVING: End = End {
    index: 3,
    name: "receiving",
    mac: [2, 0, 0, 0, 0, 2],
};
/// Where they should go: a machine that is not there. The receiving end takes them for another's.
pub(super) const STRANGER: Mac = [2, 0, 0, 0, 0, 3];

/// A network that no machine is in (RFC 5737). Port 9 is for what is to be discarded (RFC 863).
pub(super) const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 9);
pub(super) const THERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 9);
const NETWORK_BITS: u8 = 24;

/// How long packets may be under way after a batch. A softirq that was put off waits for its thread's turn.
const ARRIVAL: Duration = Duration::from_millis(500);

/// What a veth is to be like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// As veths are made.
    Plain,
    /// With a NAPI of its own: it takes frames that are not the kernel's own structure yet.
    Napi,
}

/// A veth.
pub(super) struct Veth {
    namespace: Namespace,
    netlink: Netlink,
    driver: Driver,
    /// Packets dropped on the receiving end when counting began; `None` where the kernel doesn't tell.
    dropped_before: Option<u64>,
    sent: u64,
}

impl Veth {
    /// Makes one, both ends up.
    pub(super) fn make(driver: Driver, receiver: Receiver) -> Result<Self> {
        if let Some(missing) = Feature::Veth.missing()? {
            return Err(Error::Missing(missing));
        }
        let namespace = Namespace::make()?;
        let netlink = namespace.within(|| {
            let netlink = Netlink::open().map_err(failed("netlink", "opening a socket"))?;
            let step = |action| failed("veth", action);
            netlink
                .make_veth([SENDING, RECEIVING])
                .map_err(step("making it"))?;
            if receiver == Receiver::Napi {
                gro::turn_on(RECEIVING.name).map_err(step("turning GRO on"))?;
            }
            netlink
                .add_address(SENDING.index, *HERE.ip(), NETWORK_BITS)
                .map_err(step("giving it an address"))?;
            for end in [SENDING, RECEIVING] {
                netlink.set_up(end.index).map_err(step("setting it up"))?;
            }
            netlink
                .add_neighbour(SENDING.index, *THERE.ip(), STRANGER)
                .map_err(step("naming its neighbour"))?;
            Ok(netlink)
        })?;
        let mut veth = Veth {
            namespace,
            netlink,
            driver,
            dropped_before: None,
            sent: 0,
        };
        veth.dropped_before = veth.dropped()?;
        Ok(veth)
    }

    /// Does `work` with the calling thread in the veth's namespace.
    pub(super) fn within<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.namespace.within(work)
    }

    /// Waits until all of `packets` more have come to the end of their way. They have, as a rule: the
    /// softirq that takes them runs on the same CPU before the sender goes on.
    pub(super) fn settle(&mut self, packets: u64) -> Result<()> {
        self.sent += packets;
        let (sent, begun) = (self.sent, Instant::now());
        loop {
            let Some(arrived) = self.arrived()? else {
                return Ok(());
            };
            if arrived == sent {
                return Ok(());
            }
            if begun.elapsed() > ARRIVAL {
                // The next batch is not to blame for this one.
                self.sent = arrived;
                return Err(Error::Lost {
                    driver: self.driver,
                    sent,
                    arrived,
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn arrived(&self) -> Result<Option<u64>> {
        let since = |now: u64| Some(now.saturating_sub(self.dropped_before?));
        Ok(self.dropped()?.and_then(since))
    }

    fn dropped(&self) -> Result<Option<u64>> {
        self.netlink
            .strangers_dropped(RECEIVING.index)
            .map_err(failed("veth", "asking how many packets came"))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        // Its namespace would take it along, at a time of the kernel's own; a batch of somebody else may
        // run by then.
        let _ = self.netlink.delete(SENDING.index);
    }
}
