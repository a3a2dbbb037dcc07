//! Step 8: how a packet leaves, header by header.

use etherparse::{EtherType, Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, Ipv6Header};

use crate::lab::*;

const ETHERNET: usize = 14;
/// Type of service, where IPv4 has it; IPv6's traffic class begins a nibble earlier, a byte before.
const TOS: usize = ETHERNET + 1;
const CLASSES: [u8; 5] = [0, 0x01, 0x10, 0xa5, 0xff];

/// The Ethernet type and what follows the header, which must lead to the router.
fn through_the_router(packet: &[u8]) -> (EtherType, &[u8]) {
    let (ethernet, rest) = Ethernet2Header::from_slice(packet).expect("Ethernet");
    assert_eq!(ethernet.source, BALANCER_MAC, "where it was sent to");
    assert_eq!(ethernet.destination, ROUTER_MAC);
    (ethernet.ether_type, rest)
}

/// The outer IPv4 header that the specification asks for.
fn outer_v4(source: [u8; 4], tos: u8, inner: usize, server: u32) -> Ipv4Header {
    let mut header = Ipv4Header {
        dscp: IpDscp::try_new(tos >> 2).expect("6 bits"),
        ecn: IpEcn::try_new(tos & 3).expect("2 bits"),
        total_len: (20 + inner) as u16,
        dont_fragment: false,
        time_to_live: 64,
        protocol: IpNumber::IPV4,
        source,
        destination: server_v4(server),
        ..Default::default()
    };
    header.header_checksum = header.calc_header_checksum();
    header
}

fn outer_v6(last: [u8; 4], tos: u8, inner: usize, next: IpNumber, server: u32) -> Ipv6Header {
    let mut source = [0; 16];
    source[0] = 1; // 0100::/64
    source[12..].copy_from_slice(&last);
    Ipv6Header {
        traffic_class: tos,
        payload_length: inner as u16,
        next_header: next,
        hop_limit: 64,
        source,
        destination: server_v6(server),
        ..Default::default()
    }
}

#[test]
fn ipv4_leaves_in_ipv4() {
    let Some(mut lab) = Lab::open() else { return };
    for tos in CLASSES {
        for protocol in [TCP, UDP] {
            let sent = with(&packet(CLIENT, WEB, protocol), TOS, [tos]);
            let seen = lab.send(&sent);
            assert_eq!(seen.action, TX);
            let (ether_type, ip) = through_the_router(&seen.packet);
            assert_eq!(ether_type, EtherType::IPV4);
            let (outer, inner) = Ipv4Header::from_slice(ip).expect("IPv4");
            // 12345 is 0x3039.
            let source = [172, 16, 2 ^ 0x39, 1 ^ 0x30];
            let length = sent.len() - ETHERNET;
            let server = in_ring(WEB, protocol);
            assert_eq!(
                outer,
                outer_v4(source, tos, length, server),
                "class {tos:#04x}"
            );
            assert_eq!(inner, &sent[ETHERNET..]);
            let counted = [1, length as u64];
            assert_eq!(seen.gained.vips[number(WEB, protocol) as usize], counted);
            assert_eq!(seen.gained.reals[server as usize], counted);
        }
    }
}

#[test]
fn ipv6_leaves_in_ipv6() {
    let Some(mut lab) = Lab::open() else { return };
    for tos in CLASSES {
        // The client's flow label stays with the client's header.
        let label = [0x60 | tos >> 4, tos << 4 | 0xa, 0xbc, 0xde];
        let sent = with(&packet(CLIENT_V6, WEB_V6, TCP), ETHERNET, label);
        let seen = lab.send(&sent);
        assert_eq!(seen.action, TX);
        let (ether_type, ip) = through_the_router(&seen.packet);
        assert_eq!(ether_type, EtherType::IPV6);
        let (outer, inner) = Ipv6Header::from_slice(ip).expect("IPv6");
        let length = sent.len() - ETHERNET;
        let server = in_ring(WEB_V6, TCP);
        let expected = outer_v6([0x30, 0x39, 0, 1], tos, length, IpNumber::IPV6, server);
        assert_eq!(outer, expected, "class {tos:#04x}");
        assert_eq!(inner, &sent[ETHERNET..]);
        assert_eq!(seen.gained.reals[server as usize], [1, length as u64]);
    }
}

#[test]
fn ipv4_leaves_in_ipv6_where_the_server_has_it() {
    let Some(mut lab) = Lab::open() else { return };
    for tos in CLASSES {
        let sent = with(&packet(CLIENT, MIXED, TCP), TOS, [tos]);
        let seen = lab.send(&sent);
        assert_eq!(seen.action, TX);
        let (ether_type, ip) = through_the_router(&seen.packet);
        assert_eq!(ether_type, EtherType::IPV6);
        let (outer, inner) = Ipv6Header::from_slice(ip).expect("IPv6");
        let last = [10 ^ 0x30, 10 ^ 0x39, 2, 1];
        let server = in_ring(MIXED, TCP);
        let expected = outer_v6(last, tos, sent.len() - ETHERNET, IpNumber::IPV4, server);
        assert_eq!(outer, expected, "class {tos:#04x}");
        assert_eq!(inner, &sent[ETHERNET..]);
    }
}

#[test]
fn ipv6_never_leaves_in_ipv4() {
    let Some(mut lab) = Lab::open() else { return };
    let sent = packet(CLIENT_V6, MISMATCHED, TCP);
    let seen = lab.send(&sent);
    assert_eq!((seen.action, seen.gained.actions[DROP as usize]), (DROP, 1));
    assert_eq!(seen.packet, sent);
}

#[test]
fn a_checksum_carries_as_often_as_it_must() {
    let Some(mut lab) = Lab::open() else { return };
    let mut carries = [0; 3];
    for port in 0..=u16::MAX {
        let [low, high] = port.to_le_bytes();
        let source = [172, 16, 2 ^ low, 1 ^ high];
        let outer = outer_v4(source, 0, 20 + 20 + PAYLOAD.len(), in_ring(WEB, TCP));
        let needed = carries_of(&outer);
        // A packet for each of the few ports that need two, and some of the others.
        if carries[needed] >= 8 {
            continue;
        }
        carries[needed] += 1;
        let seen = lab.send(&packet(&format!("10.10.2.1:{port}"), WEB, TCP));
        let (_, ip) = through_the_router(&seen.packet);
        let sent = u16::from_be_bytes([ip[10], ip[11]]);
        assert_eq!(sent, outer.header_checksum, "port {port}, {needed} carries");
    }
    assert!(carries[2] > 0, "no port needs two carries: {carries:?}");
}

/// Carries in the sum of a header's words, as they stand in little-endian memory.
fn carries_of(header: &Ipv4Header) -> usize {
    let header = Ipv4Header {
        header_checksum: 0,
        ..header.clone()
    };
    let bytes = header.to_bytes();
    let words = bytes.chunks_exact(2);
    let mut sum: u32 = words
        .map(|two| u32::from(u16::from_le_bytes([two[0], two[1]])))
        .sum();
    let mut carries = 0;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
        carries += 1;
    }
    carries
}
