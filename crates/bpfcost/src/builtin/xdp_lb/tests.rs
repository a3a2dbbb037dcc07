//! The scenarios are compared with the table of their specification, and the model with itself.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use bpfcost_bpf::lb::{Flood, VIP_BYPASS_LRU};
use etherparse::{
    EtherType, Ethernet2Header, IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header,
    Ipv6FragmentHeader, Ipv6Header, TcpHeader, UdpHeader,
};

use super::{
    check, model, packet,
    scenario::{self, Action, Flows, LruState, Scenario},
    sequence::{Sequence, low_word},
};
use bpfcost_model::Sizing;

/// Study 002's scenarios, in its order: name; source and VIP; the VIP's number; what the packet is;
/// the LRU before it (`bypass`: the VIP does not use it) and which operations miss it; action; bytes
/// in and out; bits of the source that vary; operations of a trial where they are fixed.
#[rustfmt::skip]
const SPECIFIED: &str = "
tcp-v4-lru-hit     10.10.2.1:12345       10.10.1.1:80       0  tcp       warm   none  TX    70  90  0       -
tcp-v4-ch          10.10.2.2:54321       10.10.1.2:80       1  tcp       bypass all   TX    70  90  0       -
tcp-v6-lru-hit     [fd00:200::1]:12345   [fd00:100::1]:80   10 tcp       warm   none  TX    90  130 0       -
tcp-v6-ch          [fd00:200::2]:54321   [fd00:100::2]:80   12 tcp       bypass all   TX    90  130 0       -
udp-v4-lru-hit     10.10.3.1:11111       10.10.1.1:443      2  udp       warm   none  TX    58  78  0       -
udp-v6-lru-hit     [fd00:200::3]:22222   [fd00:100::1]:443  14 udp       warm   none  TX    78  118 0       -
tcp-v4v6-lru-hit   10.10.2.4:12347       10.10.1.4:80       13 tcp       warm   none  TX    70  110 0       -
tcp-v4-lru-diverse 10.10.2.1:12345       10.10.1.1:80       0  tcp       warm   none  TX    70  90  fff     -
tcp-v4-ch-diverse  10.10.2.2:54321       10.10.1.2:80       1  tcp       bypass all   TX    70  90  fff     -
tcp-v6-lru-diverse [fd00:200::1]:12345   [fd00:100::1]:80   10 tcp       warm   none  TX    90  130 fff     -
tcp-v6-ch-diverse  [fd00:200::2]:54321   [fd00:100::2]:80   12 tcp       bypass all   TX    90  130 fff     -
udp-v4-lru-diverse 10.10.3.1:11111       10.10.1.1:443      2  udp       warm   none  TX    58  78  fff     -
tcp-v4-syn         10.10.8.2:60001       10.10.1.1:80       0  syn       warm   all   TX    70  90  0       -
tcp-v4-rst-miss    10.10.8.1:60000       10.10.1.1:80       0  rst       cold   all   TX    70  90  ffffff  -
tcp-v4-lru-miss    10.10.2.1:12345       10.10.1.1:80       0  tcp       cold   first TX    70  90  ffffff  -
udp-v4-lru-miss    10.10.3.1:11111       10.10.1.1:443      2  udp       cold   first TX    58  78  ffffff  -
tcp-v4-lru-warmup  10.10.2.1:12345       10.10.1.1:80       0  tcp       cold   first TX    70  90  fff     6500
pass-v4-no-vip     10.10.4.1:33333       10.10.9.9:80       -  tcp       -      -     PASS  70  70  0       -
pass-v6-no-vip     [fd00:400::1]:33333   [fd00:9900::1]:80  -  tcp       -      -     PASS  90  90  0       -
pass-v4-icmp       10.10.6.1:0           10.10.1.1:0        -  icmp      -      -     PASS  50  50  0       -
pass-non-ip        -                     -                  -  arp       -      -     PASS  30  30  0       -
drop-v4-frag       10.10.5.1:44444       10.10.1.1:80       -  fragment  -      -     DROP  70  70  0       -
drop-v4-options    10.10.7.1:55555       10.10.1.1:80       -  options   -      -     DROP  74  74  0       -
drop-v6-frag       [fd00:500::1]:44444   [fd00:100::1]:80   -  fragment  -      -     DROP  98  98  0       -
";

/// One row of [`SPECIFIED`].
struct SpecRow {
    name: &'static str,
    source: &'static str,
    vip: &'static str,
    number: Option<u32>,
    packet: &'static str,
    table: &'static str,
    misses: &'static str,
    action: Action,
    bytes_in: usize,
    bytes_out: usize,
    mask: u32,
    ops: Option<u64>,
}

fn specified() -> Vec<SpecRow> {
    let rows = SPECIFIED.trim().lines().map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [
            name,
            source,
            vip,
            number,
            packet,
            table,
            misses,
            action,
            bytes_in,
            bytes_out,
            mask,
            ops,
        ] = columns[..]
        else {
            panic!("12 columns: {line}")
        };
        SpecRow {
            name,
            source,
            vip,
            number: number.parse().ok(),
            packet,
            table,
            misses,
            action: match action {
                "TX" => Action::Tx,
                "PASS" => Action::Pass,
                _ => Action::Drop,
            },
            bytes_in: bytes_in.parse().unwrap(),
            bytes_out: bytes_out.parse().unwrap(),
            mask: u32::from_str_radix(mask, 16).unwrap(),
            ops: ops.parse().ok(),
        }
    });
    rows.collect()
}

fn scenarios() -> Vec<Scenario> {
    scenario::all()
        .into_iter()
        .filter(|one| one.name != "lru-insert-empty")
        .collect()
}

fn output(scenario: &Scenario, source: IpAddr) -> Vec<u8> {
    let input = packet::with_source(&packet::input(scenario), source);
    match model::route(scenario) {
        None => input,
        Some(route) => packet::encapsulated(&input, source, scenario.source_port, route.tunnel_end),
    }
}

#[test]
fn scenarios_are_those_of_the_specification() {
    let (scenarios, rows) = (scenarios(), specified());
    assert_eq!((scenarios.len(), rows.len()), (24, 24));
    for (scenario, row) in scenarios.iter().zip(rows) {
        let name = row.name;
        assert_eq!(scenario.name, name);
        assert_eq!(scenario.action, row.action, "{name}");
        assert_eq!(scenario.mask, row.mask, "{name}");
        let fixed = match scenario.sizing {
            Sizing::Fixed(ops) => Some(ops),
            Sizing::Calibrated { .. } | Sizing::Window(_) => None,
        };
        assert_eq!(fixed, row.ops, "{name}");
        let flows = match row.misses {
            "none" => Flows::Known,
            "all" => Flows::Missing,
            "first" => Flows::Fresh,
            _ => Flows::Unasked,
        };
        assert_eq!(scenario.flows, flows, "{name}");
        let is_cold = scenario.table == LruState::Full;
        assert_eq!(is_cold, row.table == "cold", "{name}");

        let route = model::route(scenario);
        assert_eq!(route.map(|route| route.vip), row.number, "{name}");
        let bypasses = |number| {
            let vip = model::vips().find(|(_, vip)| vip.number == number);
            vip.is_some_and(|(_, vip)| vip.flags == VIP_BYPASS_LRU)
        };
        assert_eq!(
            row.number.is_some_and(bypasses),
            row.table == "bypass",
            "{name}"
        );
        let tunnel_end = match row.bytes_out - row.bytes_in {
            0 => None,
            20 => Some("192.168.1.2"),
            _ => Some("fd00::2"),
        };
        let tunnel_end = tunnel_end.map(|end| end.parse::<IpAddr>().unwrap());
        assert_eq!(route.map(|route| route.tunnel_end), tunnel_end, "{name}");
        let sent = packet::input(scenario);
        let left = output(scenario, scenario.source);
        assert_eq!(
            (sent.len(), left.len()),
            (row.bytes_in, row.bytes_out),
            "{name}"
        );
    }
}

/// Every byte of every packet but the payload's.
#[test]
fn packets_are_those_of_the_specification() {
    for (scenario, row) in scenarios().iter().zip(specified()) {
        let name = row.name;
        let bytes = packet::input(scenario);
        let (ethernet, rest) = Ethernet2Header::from_slice(&bytes).unwrap();
        let to = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(ethernet.destination, to, "{name}");
        let from = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66];
        assert_eq!(ethernet.source, from, "{name}");
        let payload = if row.packet == "arp" {
            assert_eq!(ethernet.ether_type, EtherType::ARP);
            rest
        } else {
            let source: SocketAddr = row.source.parse().unwrap();
            let vip: SocketAddr = row.vip.parse().unwrap();
            let (ether_type, rest) = after_ip(&row, source.ip(), vip.ip(), rest);
            assert_eq!(ethernet.ether_type, ether_type, "{name}");
            after_transport(&row, source.port(), vip.port(), rest)
        };
        assert_eq!(payload.len(), 16, "{name}");
    }
}

/// Checks the IP header against the specification, and returns the bytes behind it.
fn after_ip<'a>(row: &SpecRow, from: IpAddr, to: IpAddr, bytes: &'a [u8]) -> (EtherType, &'a [u8]) {
    let protocol = match row.packet {
        "udp" => IpNumber::UDP,
        "icmp" => IpNumber::ICMP,
        _ => IpNumber::TCP,
    };
    let is_fragment = row.packet == "fragment";
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let (header, rest) = Ipv4Header::from_slice(bytes).unwrap();
            let mut expected = Ipv4Header {
                dscp: IpDscp::try_new(46).unwrap(),
                ecn: IpEcn::ONE,
                total_len: bytes.len() as u16,
                dont_fragment: false,
                more_fragments: is_fragment,
                time_to_live: 64,
                protocol,
                source: from.octets(),
                destination: to.octets(),
                ..Default::default()
            };
            if row.packet == "options" {
                expected.options = [1; 4].into(); // no operation, four times
            }
            expected.header_checksum = expected.calc_header_checksum();
            assert_eq!(header, expected, "{}", row.name);
            (EtherType::IPV4, rest)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let (header, rest) = Ipv6Header::from_slice(bytes).unwrap();
            let expected = Ipv6Header {
                traffic_class: 0xb9,
                payload_length: rest.len() as u16,
                next_header: if is_fragment { IpNumber(44) } else { protocol },
                hop_limit: 64,
                source: from.octets(),
                destination: to.octets(),
                ..Default::default()
            };
            assert_eq!(header, expected, "{}", row.name);
            if !is_fragment {
                return (EtherType::IPV6, rest);
            }
            let (fragment, rest) = Ipv6FragmentHeader::from_slice(rest).unwrap();
            let expected = Ipv6FragmentHeader::new(protocol, IpFragOffset::ZERO, true, 1);
            assert_eq!(fragment, expected, "{}", row.name);
            (EtherType::IPV6, rest)
        }
        ends => panic!("of one family, but: {ends:?}"),
    }
}

/// Checks the transport header against the specification, with checksums of zero, and returns the bytes behind it.
fn after_transport<'a>(row: &SpecRow, from: u16, to: u16, bytes: &'a [u8]) -> &'a [u8] {
    match row.packet {
        "icmp" => bytes,
        "udp" => {
            let (header, rest) = UdpHeader::from_slice(bytes).unwrap();
            let expected = UdpHeader {
                source_port: from,
                destination_port: to,
                length: 24,
                checksum: 0,
            };
            assert_eq!(header, expected, "{}", row.name);
            rest
        }
        flags => {
            let (header, rest) = TcpHeader::from_slice(bytes).unwrap();
            let expected = TcpHeader {
                syn: flags == "syn",
                rst: flags == "rst",
                ack: !["syn", "rst"].contains(&flags),
                ..TcpHeader::new(from, to, 0, 8192)
            };
            assert_eq!(header, expected, "{}", row.name);
            rest
        }
    }
}

#[test]
fn an_ipv4_packet_leaves_as_specified() {
    let scenario = &scenarios()[0];
    let out = output(scenario, scenario.source);
    #[rustfmt::skip]
    let outer = [
        0xde, 0xad, 0xbe, 0xef, 0x00, 0x01, // to the router
        0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, // from where it was sent to
        0x08, 0x00,
        0x45, 0xb9, 0x00, 76, 0, 0, 0, 0, 64, 4,
    ];
    assert_eq!(out[..outer.len()], outer);
    // 172.16, then 2.1 (the source's lower half) mixed with port 12345 = 0x3039.
    assert_eq!(out[26..30], [172, 16, 2 ^ 0x39, 1 ^ 0x30]);
    assert_eq!(out[30..34], [192, 168, 1, 2]);
    // A header with its checksum sums to all ones (RFC 1071).
    let words = out[14..34]
        .chunks_exact(2)
        .map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    assert_eq!(out[34..], packet::input(scenario)[14..]);
}

#[test]
fn an_ipv6_packet_leaves_as_specified() {
    let scenario = &scenarios()[2];
    let out = output(scenario, scenario.source);
    assert_eq!(out[12..22], [0x86, 0xdd, 0x6b, 0x90, 0, 0, 0, 76, 41, 64]);
    // 0100::, and ::1's last word mixed with port 12345 = 0x3039.
    let mut from = [0; 16];
    from[0] = 1;
    from[12..].copy_from_slice(&[0x30, 0x39, 0, 1]);
    assert_eq!(out[22..38], from);
    assert_eq!(
        out[38..54],
        "fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets()
    );
    assert_eq!(out[54..], packet::input(scenario)[14..]);
}

#[test]
fn neighbouring_slots_lead_to_different_servers() {
    let rings: Vec<u32> = model::rings().collect();
    for vip in rings.chunks_exact(bpfcost_bpf::lb::RING_SIZE) {
        assert!(vip.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(vip.iter().collect::<HashSet<_>>().len(), 8);
    }
}

#[test]
fn doing_the_reset_twice_skips_every_other_source() {
    let base = "10.10.2.1".parse().unwrap();
    let sequence = |stride| Sequence::new(base, 0xff_ffff, low_word(base), 99, stride);
    let once: Vec<u32> = sequence(1).words(9).collect();
    let twice: Vec<u32> = sequence(2).words(5).collect();
    assert_eq!(twice, once.iter().copied().step_by(2).collect::<Vec<_>>());
    for ops in 1..=5 {
        assert_eq!(sequence(2).last_word(ops), twice[ops as usize - 1]);
    }
    assert!(once.iter().all(|word| word >> 24 == 10));
}

#[test]
fn misses_are_first_touches_or_all_or_none() {
    let all = scenario::all();
    let misses = |name: &str, ops| {
        let scenario = all.iter().find(|one| one.name == name).expect(name);
        let base = low_word(scenario.source);
        let sequence = Sequence::new(scenario.source, scenario.mask, base, 7, 1);
        let distinct = sequence.words(ops).collect::<HashSet<_>>().len() as u64;
        (
            model::expected(scenario, &sequence, 0, ops).misses,
            distinct,
        )
    };
    let (missed, distinct) = misses("tcp-v4-lru-warmup", 6500);
    assert_eq!(missed, distinct);
    assert!(
        (3100..3400).contains(&missed),
        "about half of 6500, but {missed}"
    );
    assert_eq!(misses("tcp-v4-syn", 1000).0, 1000);
    assert_eq!(misses("tcp-v4-rst-miss", 1000).0, 1000);
    assert_eq!(misses("tcp-v4-ch", 1000).0, 1000);
    assert_eq!(misses("tcp-v4-lru-diverse", 1000).0, 0);
    assert_eq!(misses("pass-non-ip", 1000).0, 0);
}

#[test]
fn new_connections_are_all_counted_in_a_second_that_began_in_the_batch() {
    const BEGUN: u64 = 5_000_000_000;
    let flood = |second_start_ns, connections| Flood {
        second_start_ns,
        connections,
    };
    let before = flood(3_000_000_000, 7);
    let passes = |misses, lasted_ns, got| {
        check::flood(misses, before, got, BEGUN..=BEGUN + lasted_ns).is_none()
    };
    let short = |misses, got| passes(misses, 1000, got);
    assert!(short(5, flood(BEGUN, 5)) && short(5, flood(BEGUN + 1000, 5)));
    assert!(!short(5, flood(BEGUN, 4)) && !short(5, flood(BEGUN, 6)));
    assert!(!short(5, flood(BEGUN - 1, 5)) && !short(5, flood(BEGUN + 1001, 5)));
    // Without a miss nothing is counted.
    assert!(short(0, before));
    assert!(!short(0, flood(BEGUN, 7)) && !short(0, flood(3_000_000_000, 8)));
    // A batch that was held up may have met another second.
    let long = |got| passes(5, 1_500_000_000, got);
    assert!(long(flood(BEGUN + 1_400_000_000, 1)) && long(flood(BEGUN, 5)));
    assert!(!long(flood(BEGUN, 6)) && !long(flood(BEGUN, 0)) && !long(flood(0, 5)));
}
