//! Packets: the input, and the expected output byte by byte.
//!
//! Built from header fields by a library that the datapath shares nothing with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    EtherType, Ethernet2Header, IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options,
    Ipv6Header, TcpHeader, UdpHeader,
};

use super::scenario::{Layer4, PacketShape, Scenario};

const BALANCER_MAC: [u8; 6] = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
const CLIENT_MAC: [u8; 6] = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66];
/// MAC address of the router, the next hop of everything that is forwarded.
pub(super) const ROUTER_MAC: [u8; 6] = [0xde, 0xad, 0xbe, 0xef, 0x00, 0x01];

/// DSCP 46 (expedited forwarding) and ECN 1, in packets and outer headers: not zero, so that a byte that is not copied
/// shows.
const DSCP: u8 = 46;
const TRAFFIC_CLASS: u8 = DSCP << 2 | 1;
const TTL: u8 = 64;
const WINDOW: u16 = 8192;
const PAYLOAD: [u8; 16] = *b"bpfcost payload.";
const ETHERNET: usize = Ethernet2Header::LEN;
const FRAGMENT_HEADER: IpNumber = IpNumber(44);

/// The packet of a scenario, from its first source.
pub(super) fn input(scenario: &Scenario) -> Vec<u8> {
    let mut layer4 = layer4(scenario);
    let (ether_type, ip) = match (scenario.shape, scenario.source, scenario.vip) {
        (PacketShape::NotIp, ..) => {
            layer4 = PAYLOAD.to_vec();
            (EtherType::ARP, Vec::new())
        }
        (_, IpAddr::V4(source), IpAddr::V4(vip)) => {
            (EtherType::IPV4, ipv4(scenario, source, vip, layer4.len()))
        }
        (_, source, vip) => {
            let fragment = scenario.shape == PacketShape::FragmentHeader;
            if fragment {
                // Next header TCP, reserved, offset 0 with more fragments, an identification.
                layer4.splice(0..0, [IpNumber::TCP.0, 0, 0, 1, 0, 0, 0, 1]);
            }
            let next = if fragment {
                FRAGMENT_HEADER
            } else {
                protocol(scenario)
            };
            (
                EtherType::IPV6,
                ipv6(to_v6(source), to_v6(vip), next, layer4.len()),
            )
        }
    };
    [
        &ethernet(CLIENT_MAC, BALANCER_MAC, ether_type)[..],
        &ip,
        &layer4,
    ]
    .concat()
}

/// `packet` from another source: what the reset step writes. No checksum follows it.
pub(super) fn with_source(packet: &[u8], source: IpAddr) -> Vec<u8> {
    let mut packet = packet.to_vec();
    match source {
        IpAddr::V4(source) => packet[ETHERNET + 12..][..4].copy_from_slice(&source.octets()),
        IpAddr::V6(source) => packet[ETHERNET + 8..][..16].copy_from_slice(&source.octets()),
    }
    packet
}

/// `packet` as it must leave for `tunnel_end`, given who sent it from which port.
pub(super) fn encapsulated(
    packet: &[u8],
    source: IpAddr,
    source_port: u16,
    tunnel_end: IpAddr,
) -> Vec<u8> {
    let inner = &packet[ETHERNET..];
    let (ether_type, outer) = match (source, tunnel_end) {
        (IpAddr::V4(source), IpAddr::V4(end)) => {
            // 172.16 in front, then the source port mixed into the source's lower half.
            let [_, _, c, d] = source.octets();
            let [low, high] = source_port.to_le_bytes();
            let from = Ipv4Addr::new(172, 16, c ^ low, d ^ high);
            let mut header = v4_header(from, end, IpNumber::IPV4, inner.len());
            header.header_checksum = header.calc_header_checksum();
            (EtherType::IPV4, header.to_bytes().to_vec())
        }
        (source, end) => {
            let (last, protocol) = match source {
                IpAddr::V4(source) => (source.octets(), IpNumber::IPV4),
                IpAddr::V6(source) => {
                    let [.., a, b, c, d] = source.octets();
                    ([a, b, c, d], IpNumber::IPV6)
                }
            };
            let [high, low] = source_port.to_be_bytes();
            let mut from = Ipv6Addr::new(0x0100, 0, 0, 0, 0, 0, 0, 0).octets();
            from[12..].copy_from_slice(&[last[0] ^ high, last[1] ^ low, last[2], last[3]]);
            (
                EtherType::IPV6,
                ipv6(from.into(), to_v6(end), protocol, inner.len()),
            )
        }
    };
    [
        &ethernet(BALANCER_MAC, ROUTER_MAC, ether_type)[..],
        &outer,
        inner,
    ]
    .concat()
}

fn ethernet(source: [u8; 6], destination: [u8; 6], ether_type: EtherType) -> [u8; ETHERNET] {
    Ethernet2Header {
        source,
        destination,
        ether_type,
    }
    .to_bytes()
}

fn v4_header(source: Ipv4Addr, to: Ipv4Addr, protocol: IpNumber, payload: usize) -> Ipv4Header {
    Ipv4Header {
        dscp: IpDscp::try_new(DSCP).unwrap_or_default(),
        ecn: IpEcn::ONE,
        total_len: (Ipv4Header::MIN_LEN + payload) as u16,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: IpFragOffset::ZERO,
        time_to_live: TTL,
        protocol,
        header_checksum: 0,
        source: source.octets(),
        destination: to.octets(),
        options: Ipv4Options::default(),
    }
}

fn ipv4(scenario: &Scenario, source: Ipv4Addr, vip: Ipv4Addr, payload: usize) -> Vec<u8> {
    let mut header = v4_header(source, vip, protocol(scenario), payload);
    header.more_fragments = scenario.shape == PacketShape::MoreFragments;
    if scenario.shape == PacketShape::Options {
        header.options = [1; 4].into(); // four NOPs
        header.total_len += 4;
    }
    header.header_checksum = header.calc_header_checksum();
    header.to_bytes().to_vec()
}

fn ipv6(source: Ipv6Addr, to: Ipv6Addr, next_header: IpNumber, payload: usize) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: TRAFFIC_CLASS,
        payload_length: payload as u16,
        next_header,
        hop_limit: TTL,
        source: source.octets(),
        destination: to.octets(),
        ..Ipv6Header::default()
    };
    header.to_bytes().to_vec()
}

/// The transport header, checksum zero, and the payload.
fn layer4(scenario: &Scenario) -> Vec<u8> {
    let mut bytes = match scenario.layer4 {
        Layer4::Icmp => Vec::new(),
        Layer4::Udp => {
            let header = UdpHeader {
                source_port: scenario.source_port,
                destination_port: scenario.vip_port,
                length: (UdpHeader::LEN + PAYLOAD.len()) as u16,
                checksum: 0,
            };
            header.to_bytes().to_vec()
        }
        flags @ (Layer4::Tcp | Layer4::TcpSyn | Layer4::TcpRst) => {
            let mut header = TcpHeader::new(scenario.source_port, scenario.vip_port, 0, WINDOW);
            header.syn = flags == Layer4::TcpSyn;
            header.rst = flags == Layer4::TcpRst;
            header.ack = flags == Layer4::Tcp;
            header.to_bytes().to_vec()
        }
    };
    bytes.extend(PAYLOAD);
    bytes
}

fn protocol(scenario: &Scenario) -> IpNumber {
    match scenario.layer4 {
        Layer4::Icmp => IpNumber::ICMP,
        Layer4::Udp => IpNumber::UDP,
        Layer4::Tcp | Layer4::TcpSyn | Layer4::TcpRst => IpNumber::TCP,
    }
}

/// An IPv6 address unchanged; an IPv4 one comes here only through a wrong scenario.
fn to_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
