//! The network shared by server and client, and the kernel's counters in it. They give the number of calls that
//! received a datagram, which neither server nor client reports.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, str::FromStr};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::{
    Feature,
    net::{self, Card, Link},
};

use super::{Definition, outside};
use bpfcost_process::RunContext;

/// Where the kernel reports the counts of the calling thread's namespace.
const COUNTS: &str = "/proc/thread-self/net/snmp";

/// Those that are of interest, and what they are called here. `InDatagrams` are counted as a program takes them,
/// not as they arrive (net/ipv4/udp.c, udp_recvmsg).
const WANTED: [(&str, &str); 1] = [("InDatagrams", "udp_received")];

/// The network whose clients are outside of a guest.
pub(super) const FORWARDED: &str = "forwarded";

/// How server and client reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// By the loopback interface that this machine has.
    #[default]
    Here,
    /// By the loopback interface of a namespace of their own.
    Loopback,
    /// By a veth between two namespaces of their own; what the server receives is received by its CPU, where it
    /// has one alone, up from the interface.
    Veth,
    /// By a port that QEMU's user-mode network forwards: the server is in a guest, the client on its host.
    Forwarded,
}

impl FromStr for Path {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "" | "here" => Path::Here,
            "loopback" => Path::Loopback,
            "veth" => Path::Veth,
            FORWARDED => Path::Forwarded,
            _ => {
                bail!("there is no network {name}\n  Networks: here, loopback, veth, {FORWARDED}")
            }
        })
    }
}

/// A network. There as long as this, or a process that was started in it.
#[derive(Debug, Default)]
pub struct Network(NetworkKind);

/// What it is made of.
#[derive(Debug, Default)]
enum NetworkKind {
    /// What this machine has; others use it too.
    #[default]
    Shared,
    /// Separate namespaces.
    Own(net::NetNamespaces),
    /// The network card of a guest, used for this alone.
    Card(Card),
}

impl Network {
    /// Makes one, for a server on these CPUs.
    pub fn open(path: Path, server_cpus: &[u32]) -> Result<Self> {
        let link = match path {
            Path::Here => return Ok(Network(NetworkKind::Shared)),
            Path::Forwarded => {
                let outside::GuestEndpoint {
                    mac, address, bits, ..
                } = outside::END;
                let card = Card::up(mac, address, bits);
                return card.map(|card| Network(NetworkKind::Card(card))).context(
                    "the guest cannot be reached from outside: its kernel needs virtio_net (Debian's kernels have it)",
                );
            }
            Path::Loopback => Link::Loopback,
            Path::Veth => Link::Veth {
                receiver: match server_cpus {
                    [cpu] => Some(*cpu),
                    _ => None,
                },
            },
        };
        let able = match link {
            Link::Loopback => Ok(()),
            Link::Veth { .. } => Feature::Veth.require(),
        };
        let made = able.and_then(|()| net::NetNamespaces::make(link));
        made.map(|network| Network(NetworkKind::Own(network)))
            .context("making a network for the workload")
    }

    /// Where the server is reached.
    pub fn address(&self) -> Ipv4Addr {
        match &self.0 {
            NetworkKind::Shared => Ipv4Addr::LOCALHOST,
            NetworkKind::Own(own) => own.address(),
            NetworkKind::Card(_) => outside::END.address,
        }
    }

    /// Does `work` where the server is: this thread, and what it starts.
    pub fn at_server<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        match &self.0 {
            NetworkKind::Own(own) => Ok(own.at_server(work)?),
            NetworkKind::Shared | NetworkKind::Card(_) => Ok(work()),
        }
    }

    /// Does `work` where the client is: this thread, and what it starts.
    pub fn at_client<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        match &self.0 {
            NetworkKind::Own(own) => Ok(own.at_client(work)?),
            NetworkKind::Shared | NetworkKind::Card(_) => Ok(work()),
        }
    }

    /// What the kernel has counted on it so far; nothing on one that others use too.
    pub fn counts(&self) -> Result<BTreeMap<String, f64>> {
        let mut all = BTreeMap::new();
        let read = || fs::read_to_string(COUNTS);
        let texts = match &self.0 {
            NetworkKind::Shared => Vec::new(),
            NetworkKind::Own(own) => own.each(read)?,
            NetworkKind::Card(card) => {
                all.insert("arrived".to_owned(), card.received()? as f64);
                vec![read()]
            }
        };
        for text in texts {
            let text = text.with_context(|| format!("cannot read {COUNTS}"))?;
            for (name, count) in counts(&text)? {
                *all.entry(name.to_owned()).or_default() += count;
            }
        }
        Ok(all)
    }
}

impl Definition {
    /// The network that a case is on, by its name.
    pub fn network_of(&self, factors: &BTreeMap<String, String>) -> Result<String> {
        let context = RunContext {
            factors: factors.clone(),
            ..RunContext::default()
        };
        context
            .fill(&self.network)
            .with_context(|| format!("the network of {}", self.name))
    }

    /// Whether its load comes from outside of a guest.
    pub fn is_outside(&self, factors: &BTreeMap<String, String>) -> bool {
        self.network_of(factors).is_ok_and(|name| name == FORWARDED)
    }
}

/// The counts of UDP: a line of names, and one of numbers.
fn counts(snmp: &str) -> Result<Vec<(&'static str, f64)>> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
        bail!("{COUNTS} has no counts of UDP");
    };
    let names: Vec<&str> = names.split_whitespace().collect();
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    WANTED
        .into_iter()
        .map(|(theirs, ours)| {
            let at = names.iter().position(|name| *name == theirs);
            let number = at.and_then(|at| numbers.get(at)?.parse().ok());
            let number = number.with_context(|| format!("{COUNTS} has no {theirs}"))?;
            Ok((ours, number))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::require;

    const SNMP: &str = "\
Tcp: RtoAlgorithm RtoMin
Tcp: 1 200
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 823286 0 6892 830233 6891 0 0 0 0
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 0 0 0 0 0
";

    #[test]
    fn counts_go_by_their_names() {
        let told = counts(SNMP).expect("counts");
        assert_eq!(told, [("udp_received", 823_286.0)]);
        assert!(counts("Tcp: RtoMin\nTcp: 200\n").is_err());
        assert!(counts("Udp: NoPorts\nUdp: 7\n").is_err());
    }

    /// Received data is counted and not sent on.
    #[test]
    fn each_call_that_receives_is_counted() {
        for path in [Path::Loopback, Path::Veth] {
            let network = match Network::open(path, &[0]) {
                Ok(network) => network,
                Err(error) => {
                    require::skip(format!("{error:#}"));
                    return;
                }
            };
            let bind = |address| UdpSocket::bind((address, 0)).expect("a socket");
            let server = network.at_server(|| bind(network.address())).expect("in");
            let client = network
                .at_client(|| bind(Ipv4Addr::UNSPECIFIED))
                .expect("in");
            let to = server.local_addr().expect("an address");
            let before = network.counts().expect("counts");
            for _ in 0..5 {
                client.send_to(b"x", to).expect("sent");
            }
            for _ in 0..3 {
                server.recv(&mut [0; 8]).expect("received");
            }
            let after = network.counts().expect("counts");
            assert_eq!(after["udp_received"] - before["udp_received"], 3.0);
        }
    }

    #[test]
    fn a_network_that_is_not_there_is_named() {
        let error = "tap".parse::<Path>().expect_err("none").to_string();
        assert!(error.contains("tap") && error.contains("veth"), "{error}");
    }
}
