//! The network that server and client share, and what the kernel counts on it: that tells how many calls received
//! a datagram, which neither of them does.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, str::FromStr};

use anyhow::{Context, Result, bail};
use bpfcost_bpf::net::{self, Link};

/// Where the kernel tells its counts, of the calling thread's namespace.
const COUNTS: &str = "/proc/thread-self/net/snmp";

/// Those that are of interest, and what they are called here. `InDatagrams` are counted as a program takes them,
/// not as they arrive (net/ipv4/udp.c, udp_recvmsg).
const WANTED: [(&str, &str); 1] = [("InDatagrams", "udp_received")];

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
}

impl FromStr for Path {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "" | "here" => Path::Here,
            "loopback" => Path::Loopback,
            "veth" => Path::Veth,
            _ => bail!("there is no network {name}: there are here, loopback and veth"),
        })
    }
}

/// A network. There as long as this, or a process that was started in it.
#[derive(Debug, Default)]
pub struct Network(Option<net::Network>);

impl Network {
    /// Makes one, for a server on these CPUs.
    pub fn open(path: Path, server_cpus: &[u32]) -> Result<Self> {
        let link = match path {
            Path::Here => return Ok(Network(None)),
            Path::Loopback => Link::Loopback,
            Path::Veth => Link::Veth {
                receiver: match server_cpus {
                    [cpu] => Some(*cpu),
                    _ => None,
                },
            },
        };
        let made = net::Network::make(link);
        made.map(|network| Network(Some(network)))
            .context("making a network for the workload")
    }

    /// Where the server is reached.
    pub fn address(&self) -> Ipv4Addr {
        let own = self.0.as_ref().map(net::Network::address);
        own.unwrap_or(Ipv4Addr::LOCALHOST)
    }

    /// Does `work` where the server is: this thread, and what it starts.
    pub fn at_server<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        match &self.0 {
            Some(own) => Ok(own.at_server(work)?),
            None => Ok(work()),
        }
    }

    /// Does `work` where the client is: this thread, and what it starts.
    pub fn at_client<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        match &self.0 {
            Some(own) => Ok(own.at_client(work)?),
            None => Ok(work()),
        }
    }

    /// What the kernel has counted on it so far; nothing on one that others use too.
    pub fn counts(&self) -> Result<BTreeMap<String, f64>> {
        let mut all = BTreeMap::new();
        let Some(own) = &self.0 else {
            return Ok(all);
        };
        for text in own.each(|| fs::read_to_string(COUNTS))? {
            let text = text.with_context(|| format!("can't read {COUNTS}"))?;
            for (name, count) in counts(&text)? {
                *all.entry(name.to_owned()).or_default() += count;
            }
        }
        Ok(all)
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

    /// What is received is counted where it is, and sent to nobody else.
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
