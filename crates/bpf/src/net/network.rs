//! A network for one server and one client.

use std::{fs, io, net::Ipv4Addr};

use super::{Namespace, Netlink, VethEnd};
use crate::{
    error::{Result, failed},
    mount,
};

const WHAT: &str = "a network for server and client";

/// The loopback interface of any namespace.
const LOOPBACK: u32 = 1;

/// The ends of a veth. Each is the first interface of its namespace after the loopback one.
const SERVER: VethEnd<'static> = VethEnd {
    index: 2,
    name: "server",
    mac: [2, 0, 0, 0, 0, 1],
};
const CLIENT: VethEnd<'static> = VethEnd {
    index: 2,
    name: "client",
    mac: [2, 0, 0, 0, 0, 2],
};

/// Their addresses, in a network that no machine is in (RFC 5737).
const SERVER_AT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT_AT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const NETWORK_BITS: u8 = 24;

/// The path between server and client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Both are in one namespace, and use its loopback interface. What is sent is received by the sender's CPU,
    /// up to the socket.
    Loopback,
    /// Each is in its own namespace, at an end of a veth.
    Veth {
        /// The CPU that takes what the server receives, as if a network card sent its interrupts there (receive
        /// packet steering); the sender's where there is none.
        receiver: Option<u32>,
    },
}

/// A network for a server and a client. There as long as this, or a process that was started in it.
#[derive(Debug)]
pub struct NetNamespaces {
    server: Namespace,
    /// The client's namespace, where it has another one.
    client: Option<Namespace>,
}

impl NetNamespaces {
    /// Makes one.
    pub fn make(link: Link) -> Result<Self> {
        let server = Namespace::make()?;
        let client = match link {
            Link::Loopback => None,
            Link::Veth { .. } => Some(Namespace::make()?),
        };
        let step = |action| failed(WHAT, action);
        let up = |index| {
            Netlink::open()
                .and_then(|netlink| netlink.set_up(index))
                .map_err(step("setting an interface up"))
        };
        for namespace in [Some(&server), client.as_ref()].into_iter().flatten() {
            namespace.within(|| up(LOOPBACK))?;
        }
        if let Some(client) = &client {
            server.within(|| {
                Netlink::open()
                    .and_then(|netlink| netlink.make_veth([SERVER, CLIENT], Some(client)))
                    .map_err(step("making a veth"))
            })?;
            let ends = [
                (&server, SERVER, SERVER_AT, CLIENT, CLIENT_AT),
                (client, CLIENT, CLIENT_AT, SERVER, SERVER_AT),
            ];
            for (namespace, end, at, other, other_at) in ends {
                namespace.within(|| {
                    let netlink = Netlink::open().map_err(step("asking for an address"))?;
                    netlink
                        .add_address(end.index, at, NETWORK_BITS)
                        .map_err(step("giving an address"))?;
                    up(end.index)?;
                    netlink
                        .add_neighbour(end.index, other_at, other.mac)
                        .map_err(step("naming a neighbour"))
                })?;
            }
        }
        if let Link::Veth {
            receiver: Some(cpu),
        } = link
        {
            server.within(|| steer(SERVER, cpu))?;
        }
        Ok(NetNamespaces { server, client })
    }

    /// Returns the address at which the server is reached.
    pub fn address(&self) -> Ipv4Addr {
        match self.client {
            Some(_) => SERVER_AT,
            None => Ipv4Addr::LOCALHOST,
        }
    }

    /// Does `work` where the server is: the calling thread, and what it starts.
    pub fn at_server<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.server.within(|| Ok(work()))
    }

    /// Does `work` where the client is: the calling thread, and what it starts.
    pub fn at_client<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let client = self.client.as_ref().unwrap_or(&self.server);
        client.within(|| Ok(work()))
    }

    /// Runs `work` in each namespace, for what the kernel counts separately: files of `/proc/thread-self/net`.
    pub fn each<T>(&self, mut work: impl FnMut() -> T) -> Result<Vec<T>> {
        let all = [Some(&self.server), self.client.as_ref()];
        all.into_iter()
            .flatten()
            .map(|namespace| namespace.within(|| Ok(work())))
            .collect()
    }
}

/// Has a CPU take what an end receives, in the calling thread's namespace.
fn steer(end: VethEnd<'_>, cpu: u32) -> Result<()> {
    // What is mounted shows the interfaces of another namespace.
    let sysfs = mount::open("sysfs")?;
    let file = format!("class/net/{}/queues/rx-0/rps_cpus", end.name);
    let written = fs::write(sysfs.path(&file), mask(cpu));
    written.map_err(|error| {
        let without = error.kind() == io::ErrorKind::NotFound;
        failed(
            WHAT,
            if without {
                "steering packets to a CPU, which needs CONFIG_RPS"
            } else {
                "steering packets to a CPU"
            },
        )(error)
    })
}

/// A set of one CPU, in words of 32 bits, as sysfs has them.
fn mask(cpu: u32) -> String {
    let rest = ",00000000".repeat(cpu as usize / 32);
    format!("{:x}{rest}", 1u32 << (cpu % 32))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, UdpSocket},
        time::Duration,
    };

    use super::*;
    use crate::require;

    /// A datagram goes from the client to the server, and nothing of it is seen outside.
    #[test]
    fn client_and_server_reach_each_other_and_nobody_else() {
        let veth = |receiver| Link::Veth { receiver };
        for link in [Link::Loopback, veth(None), veth(Some(0))] {
            let network = match NetNamespaces::make(link) {
                Ok(network) => network,
                Err(error) => {
                    require::skip(error);
                    return;
                }
            };
            let bind = |address| UdpSocket::bind((address, 0)).expect("a socket");
            let server = network.at_server(|| bind(network.address())).expect("in");
            let client = network
                .at_client(|| bind(Ipv4Addr::UNSPECIFIED))
                .expect("in");
            let to = server.local_addr().expect("an address");
            let timeout = Some(Duration::from_secs(5));
            server.set_read_timeout(timeout).expect("a timeout");
            client.send_to(b"here", to).expect("sent");
            let mut got = [0; 8];
            assert_eq!(server.recv(&mut got).expect("received"), 4);
            assert_eq!(&got[..4], b"here");
            let namespaces = network.each(|| std::fs::read_link("/proc/thread-self/ns/net"));
            let namespaces: Vec<_> = namespaces.expect("in").into_iter().flatten().collect();
            assert_eq!(namespaces.len(), 1 + usize::from(link != Link::Loopback));
            let here = std::fs::read_link("/proc/thread-self/ns/net").expect("a link");
            assert!(
                !namespaces.contains(&here),
                "{here:?} is one of {namespaces:?}"
            );
        }
    }

    #[test]
    fn sets_of_cpus_are_in_words() {
        assert_eq!([0, 1, 5, 31].map(mask), ["1", "2", "20", "80000000"]);
        assert_eq!(mask(32), "1,00000000");
        assert_eq!(mask(70), "40,00000000,00000000");
    }
}
