//! A user-space model of the balancer: VIPs, rings, servers, and the expected change of every counter in a batch.
//! Written from the same specification as the datapath, but without any shared code.

use std::{collections::HashMap, net::IpAddr};

use bpfcost_bpf::lb::{
    Address, Control, FlowKey, LbCounters, LruEntry, REAL_IPV6, REALS, RING_SIZE, RINGS, Real,
    VIP_BYPASS_LRU, VIPS, Vip, VipKey,
};

use super::{
    packet::ROUTER_MAC,
    scenario::{Flows, Layer4, Scenario},
    sequence::Sequence,
};

/// The VIP whose misses are counted by server.
const WATCHED_VIP: u32 = 0;

/// Servers of one VIP. All have the same address, as in the study; their counters distinguish them.
const REALS_PER_VIP: u32 = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// A VIP: address, port, protocol, number, whether it bypasses the LRU, its servers' address.
struct Service {
    address: &'static str,
    port: u16,
    protocol: u8,
    number: u32,
    bypass: bool,
    servers: &'static str,
}

const fn service(
    (address, port, protocol): (&'static str, u16, u8),
    number: u32,
    bypass: bool,
    servers: &'static str,
) -> Service {
    Service {
        address,
        port,
        protocol,
        number,
        bypass,
        servers,
    }
}

const V4_SERVERS: &str = "192.168.1.2";
const V6_SERVERS: &str = "fd00::2";

/// The last two are met only by a datapath that looks up what it should have let pass, or that takes
/// one protocol for another.
const SERVICES: [Service; 9] = [
    service(("10.10.1.1", 80, TCP), 0, false, V4_SERVERS),
    service(("10.10.1.2", 80, TCP), 1, true, V4_SERVERS),
    service(("10.10.1.1", 443, UDP), 2, false, V4_SERVERS),
    service(("fd00:100::1", 80, TCP), 10, false, V6_SERVERS),
    service(("fd00:100::2", 80, TCP), 12, true, V6_SERVERS),
    service(("10.10.1.4", 80, TCP), 13, false, V6_SERVERS),
    service(("fd00:100::1", 443, UDP), 14, false, V6_SERVERS),
    service(("10.10.1.1", 0, ICMP), 15, true, V4_SERVERS),
    service(("10.10.1.1", 80, UDP), 15, true, V4_SERVERS),
];

pub(super) fn control() -> Control {
    Control {
        router_mac: ROUTER_MAC,
        pad: [0; 2],
        watched_vip: WATCHED_VIP,
    }
}

pub(super) fn vips() -> impl Iterator<Item = (VipKey, Vip)> {
    SERVICES.iter().map(|service| {
        let key = VipKey {
            address: address(parse(service.address)),
            port: service.port.to_be(),
            protocol: service.protocol,
            pad: 0,
        };
        let flags = if service.bypass { VIP_BYPASS_LRU } else { 0 };
        (
            key,
            Vip {
                flags,
                number: service.number,
            },
        )
    })
}

/// Every server, by index; those of no VIP are never reached.
pub(super) fn reals() -> Vec<Real> {
    let mut reals = vec![Real::default(); REALS];
    for service in &SERVICES {
        let end = parse(service.servers);
        for real in &mut reals[first_real(service.number) as usize..][..REALS_PER_VIP as usize] {
            *real = Real {
                address: address(end),
                flags: if end.is_ipv6() { REAL_IPV6 } else { 0 },
            };
        }
    }
    reals
}

/// Every slot of every ring, in order.
pub(super) fn rings() -> impl Iterator<Item = u32> {
    (0..RINGS as u32).flat_map(|vip| (0..RING_SIZE as u32).map(move |slot| real_of(vip, slot)))
}

/// The server in a slot: neighbours always differ, so that a wrong slot shows in the counters.
fn real_of(vip: u32, slot: u32) -> u32 {
    first_real(vip) + (slot + slot / REALS_PER_VIP) % REALS_PER_VIP
}

fn first_real(vip: u32) -> u32 {
    1 + vip * REALS_PER_VIP
}

/// Destination of a scenario's packets: the VIP's number and its servers' address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) vip: u32,
    pub(super) tunnel_end: IpAddr,
}

/// The route of a scenario; `None` where its packets reach no VIP.
pub(super) fn route(scenario: &Scenario) -> Option<Route> {
    if scenario.flows == Flows::Unasked {
        return None;
    }
    let service = SERVICES.iter().find(|service| {
        service.port == scenario.vip_port
            && service.protocol == protocol(scenario)
            && parse(service.address) == scenario.vip
    })?;
    Some(Route {
        vip: service.number,
        tunnel_end: parse(service.servers),
    })
}

impl Route {
    /// The server that the ring has for a flow.
    fn in_ring(self, scenario: &Scenario, source: IpAddr) -> u32 {
        let slot = hash(source, scenario.source_port, scenario.vip_port) % RING_SIZE as u32;
        real_of(self.vip, slot)
    }

    /// The server that stands in a CPU's table for a flow before anything is measured. It is never
    /// the ring's, and differs between CPUs: that the table of this CPU was asked, and its answer
    /// taken, shows in the server's counters.
    pub(super) fn in_table(self, scenario: &Scenario, source: IpAddr, cpu: u32) -> u32 {
        let slot = self.in_ring(scenario, source) - first_real(self.vip);
        first_real(self.vip) + (slot + 1 + cpu % (REALS_PER_VIP - 1)) % REALS_PER_VIP
    }

    /// The server that gets a packet.
    fn of_packet(self, scenario: &Scenario, source: IpAddr, cpu: u32) -> u32 {
        match scenario.flows {
            Flows::Known => self.in_table(scenario, source, cpu),
            Flows::Fresh | Flows::Missing | Flows::Unasked => self.in_ring(scenario, source),
        }
    }

    /// The server that must stand in the table once a flow was used; `None` where no entry may.
    pub(super) fn left_in_table(
        self,
        scenario: &Scenario,
        source: IpAddr,
        cpu: u32,
    ) -> Option<u32> {
        match (scenario.flows, scenario.layer4) {
            (Flows::Known, _) => Some(self.in_table(scenario, source, cpu)),
            (Flows::Fresh, _) | (Flows::Missing, Layer4::TcpSyn) => {
                Some(self.in_ring(scenario, source))
            }
            (Flows::Missing, Layer4::TcpRst) | (Flows::Unasked, _) => None,
            // Bypassed: what stood there before stays.
            (Flows::Missing, _) => Some(self.in_table(scenario, source, cpu)),
        }
    }
}

/// The flow of a packet of `scenario` from `source`, as the table keeps it.
pub(super) fn flow(scenario: &Scenario, source: IpAddr) -> FlowKey {
    FlowKey {
        source: address(source),
        destination: address(scenario.vip),
        source_port: scenario.source_port.to_be(),
        destination_port: scenario.vip_port.to_be(),
        protocol: protocol(scenario),
        pad: [0; 3],
    }
}

/// A table entry of a flow that was just used.
pub(super) fn entry(scenario: &Scenario, real: u32, now_ns: u64) -> LruEntry {
    LruEntry {
        last_use_ns: if scenario.udp() { now_ns } else { 0 },
        real,
        pad: 0,
    }
}

/// Foreign flows, `count` of them: no scenario's packet belongs to one.
pub(super) fn foreign(count: u32) -> (Vec<FlowKey>, Vec<LruEntry>) {
    let flow = |number: u32| FlowKey {
        source: Address {
            word: [number, 0, 0, 0],
        },
        destination: address(parse("203.0.113.1")),
        source_port: 1,
        destination_port: 1,
        protocol: TCP,
        pad: [0; 3],
    };
    let entry = LruEntry {
        last_use_ns: 0,
        real: first_real(0),
        pad: 0,
    };
    ((0..count).map(flow).collect(), vec![entry; count as usize])
}

/// Expected increase of the counters, and the number of operations that miss the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) counters: LbCounters,
    pub(super) misses: u64,
}

/// Returns the expected effect of `ops` operations of a scenario on every counter of their CPU.
pub(super) fn expected(scenario: &Scenario, sequence: &Sequence, cpu: u32, ops: u64) -> Expected {
    let mut gained = LbCounters {
        events: vec![0; 4],
        actions: vec![0; 5],
        vips: vec![[0; 2]; VIPS],
        reals: vec![[0; 2]; REALS],
        real_misses: vec![0; REALS],
    };
    gained.actions[scenario.action as usize] = ops;
    let mut misses = 0;
    if let Some(route) = route(scenario) {
        for (word, times) in tally(scenario, sequence, ops) {
            let missed = match scenario.flows {
                Flows::Known | Flows::Unasked => 0,
                Flows::Fresh => 1,
                Flows::Missing => times,
            };
            misses += missed;
            let real = route.of_packet(scenario, sequence.address(word), cpu) as usize;
            let [packets, bytes] = &mut gained.reals[real];
            (*packets, *bytes) = (*packets + times, *bytes + times * ip_bytes(scenario));
            if route.vip == WATCHED_VIP {
                gained.real_misses[real] += missed;
            }
        }
        gained.vips[route.vip as usize] = [ops, ops * ip_bytes(scenario)];
        let tcp_misses = if scenario.udp() { 0 } else { misses };
        gained.events[..3].copy_from_slice(&[ops, misses, tcp_misses]);
    }
    Expected {
        counters: gained,
        misses,
    }
}

/// Counts how often each source sends.
fn tally(scenario: &Scenario, sequence: &Sequence, ops: u64) -> HashMap<u32, u64> {
    if scenario.mask == 0 {
        return sequence.words(1).map(|word| (word, ops)).collect();
    }
    let mut tally = HashMap::new();
    for word in sequence.words(ops) {
        *tally.entry(word).or_default() += 1;
    }
    tally
}

/// Length of the IP packet, as the traffic counters count it.
fn ip_bytes(scenario: &Scenario) -> u64 {
    let header = if scenario.source.is_ipv6() { 40 } else { 20 };
    let transport = if scenario.udp() { 8 } else { 20 };
    header + transport + 16
}

fn protocol(scenario: &Scenario) -> u8 {
    match scenario.layer4 {
        Layer4::Tcp | Layer4::TcpSyn | Layer4::TcpRst => TCP,
        Layer4::Udp => UDP,
        Layer4::Icmp => ICMP,
    }
}

/// An address as keys and values hold it: network order, IPv4 in the first word.
fn address(address: IpAddr) -> Address {
    let mut word = [0; 4];
    match address {
        IpAddr::V4(address) => word[0] = u32::from_ne_bytes(address.octets()),
        IpAddr::V6(address) => {
            for (word, bytes) in word.iter_mut().zip(address.octets().chunks_exact(4)) {
                *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
    }
    Address { word }
}

fn parse(text: &str) -> IpAddr {
    text.parse()
        .expect("addresses in this file are well formed")
}

/// The hash that picks a slot. Jenkins' lookup3 over source and ports as they stand in the packet;
/// an IPv6 source is hashed first, with initial value 16.
fn hash(source: IpAddr, source_port: u16, vip_port: u16) -> u32 {
    let ports = u32::from(source_port.to_be()) | u32::from(vip_port.to_be()) << 16;
    let source = match source {
        IpAddr::V4(_) => address(source).word[0],
        IpAddr::V6(_) => {
            let [a, b, c, d] = address(source).word;
            let start = 0xdead_beef_u32.wrapping_add(16 + 16);
            let mixed = mix([a, b, c].map(|word| word.wrapping_add(start)));
            last([mixed[0].wrapping_add(d), mixed[1], mixed[2]])
        }
    };
    let start = 0xdead_beef_u32.wrapping_add(8 + RING_SIZE as u32);
    last([source.wrapping_add(start), ports.wrapping_add(start), start])
}

fn mix(mut s: [u32; 3]) -> [u32; 3] {
    for (i, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (x, y, z) = (i % 3, (i + 2) % 3, (i + 1) % 3);
        s[x] = s[x].wrapping_sub(s[y]) ^ s[y].rotate_left(rotation);
        s[y] = s[y].wrapping_add(s[z]);
    }
    s
}

fn last(mut s: [u32; 3]) -> u32 {
    for (i, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = ((i + 2) % 3, (i + 1) % 3);
        s[x] = (s[x] ^ s[y]).wrapping_sub(s[y].rotate_left(rotation));
    }
    s[2]
}
