//! A small balancer, packets made by hand, and what one of them did.

use std::{
    iter,
    net::{IpAddr, SocketAddr},
};

use bpfcost_bpf::{
    allowed_cpus,
    lb::{
        Address, Control, Datapath, FlowKey, LbCounters, LbVariant, LbWork, LoadBalancer, LruEntry,
        REAL_IPV6, REALS, RING_SIZE, RINGS, Real, Reset, Sources, VIP_BYPASS_LRU, Vip, VipKey,
    },
};
use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, PacketBuilder};

use crate::require;

pub(crate) const DROP: u32 = 1;
pub(crate) const PASS: u32 = 2;
pub(crate) const TX: u32 = 3;

pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

pub(crate) const BALANCER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xc];
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xd];

pub(crate) const PAYLOAD: [u8; 16] = *b"made by the lab.";

pub(crate) const CLIENT: &str = "10.10.2.1:12345";
pub(crate) const CLIENT_V6: &str = "[fd00:200::1]:12345";

pub(crate) const WEB: &str = "10.10.1.1:80";
pub(crate) const BYPASS: &str = "10.10.1.2:80";
pub(crate) const WEB_V6: &str = "[fd00:100::1]:80";
/// IPv4, with IPv6 servers.
pub(crate) const MIXED: &str = "10.10.1.4:80";
/// IPv6, with IPv4 servers.
pub(crate) const MISMATCHED: &str = "[fd00:100::4]:80";
/// TCP alone; UDP is not served there.
pub(crate) const TCP_ONLY: &str = "10.10.1.5:80";

/// Each VIP: where, protocol, flags. Its number is its place, and its ring holds one server.
const VIPS: [(&str, u8, u32); 13] = [
    (WEB, TCP, 0),
    (WEB, UDP, 0),
    (BYPASS, TCP, VIP_BYPASS_LRU),
    (BYPASS, UDP, VIP_BYPASS_LRU),
    (WEB_V6, TCP, 0),
    (WEB_V6, UDP, 0),
    (MIXED, TCP, 0),
    (MISMATCHED, TCP, 0),
    (TCP_ONLY, TCP, 0),
    // What only a datapath that takes ICMP for more than it is would find.
    ("10.10.1.1:0", ICMP, 0),
    (WEB, ICMP, 0),
    ("[fd00:100::1]:0", ICMP, 0),
    (WEB_V6, ICMP, 0),
];

/// A server that no ring holds: only a table leads there.
pub(crate) const REMEMBERED: u32 = 30;

/// The server in every slot of a VIP's ring.
pub(crate) fn in_ring(vip: &str, protocol: u8) -> u32 {
    1 + number(vip, protocol)
}

pub(crate) fn number(vip: &str, protocol: u8) -> u32 {
    let place = VIPS
        .iter()
        .position(|&(where_, what, _)| where_ == vip && what == protocol);
    place.expect("a VIP of the lab") as u32
}

/// Address of a server, as packets have it.
pub(crate) fn server_v4(server: u32) -> [u8; 4] {
    [192, 168, 1, server as u8]
}

pub(crate) fn server_v6(server: u32) -> [u8; 16] {
    let mut address = [0xfd; 16];
    address[15] = server as u8;
    address
}

/// Effect of a packet on the counters of its CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) action: u32,
    pub(crate) packet: Vec<u8>,
    pub(crate) gained: LbCounters,
}

impl Observation {
    /// VIP packets, misses, TCP misses, floods.
    pub(crate) fn events(&self) -> [u64; 4] {
        self.gained.events[..].try_into().expect("four events")
    }

    /// The server that got the packet.
    pub(crate) fn server(&self) -> u32 {
        let reals = &self.gained.reals;
        let servers: Vec<_> = (0..).zip(reals).filter(|(_, own)| own[0] > 0).collect();
        let [(server, [1, _])] = servers[..] else {
            panic!("one packet to one server, but: {servers:?}")
        };
        server
    }

    /// Returns true if the packet went by: the action counted once, nothing else, not a byte changed.
    pub(crate) fn is_only(&self, action: u32, packet: &[u8]) -> bool {
        let mut gained = self.gained.clone();
        let counted = std::mem::take(&mut gained.actions[action as usize]) == 1;
        let counts = gained.events.iter().chain(&gained.actions);
        let rest: u64 = counts.chain(&gained.real_misses).sum();
        let traffic = gained.vips.iter().chain(&gained.reals).flatten();
        self.action == action
            && counted
            && rest + traffic.sum::<u64>() == 0
            && self.packet == packet
    }
}

pub(crate) struct Lab {
    pub(crate) balancer: LoadBalancer,
    pub(crate) cpus: Vec<u32>,
}

impl Lab {
    /// A fresh one; `None` where this host cannot.
    pub(crate) fn open() -> Option<Lab> {
        if !require::host() {
            return None;
        }
        let cpus: Vec<u32> = allowed_cpus().into_iter().take(2).collect();
        let right =
            LbVariant::for_datapath(Datapath::Right).expect("a loop that this kernel knows");
        let balancer = LoadBalancer::load(&cpus, right, None).expect("load");
        let control = Control {
            router_mac: ROUTER_MAC,
            watched_vip: number(WEB, TCP),
            ..Default::default()
        };
        balancer.set_control(&control).expect("control");
        let lab = Lab { balancer, cpus };
        for (vip, protocol, flags) in VIPS {
            lab.add_vip(vip, protocol, flags, number(vip, protocol));
        }
        let slots = (0..RINGS as u32).flat_map(|vip| iter::repeat_n(1 + vip, RING_SIZE));
        lab.balancer.set_rings(slots).expect("rings");
        let v6 = [(WEB_V6, TCP), (WEB_V6, UDP), (MIXED, TCP)].map(|(vip, what)| in_ring(vip, what));
        let real = |server| {
            if v6.contains(&server) {
                Real {
                    address: address(server_v6(server).into()),
                    flags: REAL_IPV6,
                }
            } else {
                Real {
                    address: address(server_v4(server).into()),
                    flags: 0,
                }
            }
        };
        lab.balancer
            .set_reals((0..REALS as u32).map(real))
            .expect("reals");
        Some(lab)
    }

    pub(crate) fn add_vip(&self, vip: &str, protocol: u8, flags: u32, number: u32) {
        let vip: SocketAddr = vip.parse().expect("an address and a port");
        let key = VipKey {
            address: address(vip.ip()),
            port: vip.port().to_be(),
            protocol,
            pad: 0,
        };
        let vip = Vip { flags, number };
        self.balancer.add_vip(&key, &vip).expect("VIP");
    }

    /// Sends one packet through the datapath on the first CPU.
    pub(crate) fn send(&mut self, packet: &[u8]) -> Observation {
        self.send_on(self.cpus[0], packet)
    }

    pub(crate) fn send_on(&mut self, cpu: u32, packet: &[u8]) -> Observation {
        let work = LbWork {
            cpu,
            packet: packet.to_vec(),
            sources: Sources {
                state: 1,
                mask: 0,
                prefix: 0,
            },
        };
        let before = self.balancer.counters(cpu).expect("counters");
        let seen = self.balancer.replay(Reset::None, &work, 1).expect("replay");
        let after = self.balancer.counters(cpu).expect("counters");
        let [seen] = &seen[..] else {
            panic!("one packet, but: {seen:?}")
        };
        Observation {
            action: seen.action,
            packet: seen.packet.clone(),
            gained: gained(&before, &after),
        }
    }

    /// Puts a flow to [`REMEMBERED`] into the first CPU's table.
    pub(crate) fn remember(&self, flow: &FlowKey, last_use_ns: u64) {
        let entry = LruEntry {
            last_use_ns,
            real: REMEMBERED,
            pad: 0,
        };
        self.balancer
            .remember(self.cpus[0], &[*flow], &[entry])
            .expect("room for a flow");
    }

    /// Server and last use of a flow in the first CPU's table.
    pub(crate) fn lookup(&self, flow: &FlowKey) -> Option<(u32, u64)> {
        self.lookup_on(self.cpus[0], flow)
    }

    pub(crate) fn lookup_on(&self, cpu: u32, flow: &FlowKey) -> Option<(u32, u64)> {
        let found = self.balancer.lookup(cpu, flow).expect("lookup");
        found.map(|entry| (entry.real, entry.last_use_ns))
    }
}

fn gained(before: &LbCounters, after: &LbCounters) -> LbCounters {
    let each =
        |after: &[u64], before: &[u64]| iter::zip(after, before).map(|(a, b)| a - b).collect();
    let pairs = |after: &[[u64; 2]], before: &[[u64; 2]]| {
        let pairs = iter::zip(after, before);
        pairs.map(|(a, b)| [a[0] - b[0], a[1] - b[1]]).collect()
    };
    LbCounters {
        events: each(&after.events, &before.events),
        actions: each(&after.actions, &before.actions),
        vips: pairs(&after.vips, &before.vips),
        reals: pairs(&after.reals, &before.reals),
        real_misses: each(&after.real_misses, &before.real_misses),
    }
}

/// A plain packet: no flags but ACK, no options, no fragment.
pub(crate) fn packet(from: &str, to: &str, protocol: u8) -> Vec<u8> {
    let (from, to) = ends(from, to);
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => IpHeaders::Ipv4(
            Ipv4Header {
                source: from.octets(),
                destination: to.octets(),
                time_to_live: 64,
                ..Default::default()
            },
            Default::default(),
        ),
        (IpAddr::V6(from), IpAddr::V6(to)) => IpHeaders::Ipv6(
            Ipv6Header {
                source: from.octets(),
                destination: to.octets(),
                hop_limit: 64,
                ..Default::default()
            },
            Default::default(),
        ),
        ends => panic!("of one family, but: {ends:?}"),
    };
    let mut bytes = Vec::new();
    let step = PacketBuilder::ethernet2(CLIENT_MAC, BALANCER_MAC).ip(ip);
    match protocol {
        TCP => {
            let tcp = step.tcp(from.port(), to.port(), 0, 8192).ack(0);
            tcp.write(&mut bytes, &PAYLOAD)
        }
        _ => step.udp(from.port(), to.port()).write(&mut bytes, &PAYLOAD),
    }
    .expect("a small packet");
    bytes
}

/// `packet` with other bytes at an offset.
pub(crate) fn with<const N: usize>(packet: &[u8], offset: usize, bytes: [u8; N]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[offset..][..N].copy_from_slice(&bytes);
    packet
}

/// The flow that [`packet`] belongs to.
pub(crate) fn flow(from: &str, to: &str, protocol: u8) -> FlowKey {
    let (from, to) = ends(from, to);
    FlowKey {
        source: address(from.ip()),
        destination: address(to.ip()),
        source_port: from.port().to_be(),
        destination_port: to.port().to_be(),
        protocol,
        pad: [0; 3],
    }
}

fn ends(from: &str, to: &str) -> (SocketAddr, SocketAddr) {
    let parse = |text: &str| text.parse().expect("an address and a port");
    (parse(from), parse(to))
}

/// An address as keys and values hold it: network order, IPv4 in the first word.
fn address(address: IpAddr) -> Address {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut word = [0; 4];
    for (word, bytes) in word.iter_mut().zip(octets.chunks_exact(4)) {
        *word = u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
    }
    Address { word }
}
