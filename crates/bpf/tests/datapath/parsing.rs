//! Steps 1 to 3: which packets are balanced, and which go by or are dropped.

use crate::lab::*;

const ETHERTYPE: usize = 12;
const VERSION_AND_WORDS: usize = 14;
const FRAGMENT_BITS: usize = 20;
const PROTOCOL: usize = 23;
const NEXT_HEADER: usize = 20;
const IPV6_FRAGMENT: u8 = 44;

fn v4() -> Vec<u8> {
    packet(CLIENT, WEB, TCP)
}

fn v6() -> Vec<u8> {
    packet(CLIENT_V6, WEB_V6, TCP)
}

#[test]
fn each_fragment_bit_alone_is_dropped_and_no_other() {
    let Some(mut lab) = Lab::open() else { return };
    for bit in 0..16 {
        let bits = 1u16 << bit;
        let sent = with(&v4(), FRAGMENT_BITS, bits.to_be_bytes());
        let seen = lab.send(&sent);
        if bits & 0x3fff != 0 {
            assert!(seen.is_only(DROP, &sent), "{bits:#06x}: {}", seen.action);
        } else {
            // Don't fragment, and the bit that means nothing.
            assert_eq!(seen.action, TX, "{bits:#06x}");
        }
    }
}

#[test]
fn an_ipv4_header_has_five_words() {
    let Some(mut lab) = Lab::open() else { return };
    for words in 0..16 {
        let sent = with(&v4(), VERSION_AND_WORDS, [0x40 | words]);
        let seen = lab.send(&sent);
        if words == 5 {
            assert_eq!(seen.action, TX);
        } else {
            assert!(seen.is_only(DROP, &sent), "{words} words: {}", seen.action);
        }
    }
}

#[test]
fn only_ip_is_looked_into() {
    let Some(mut lab) = Lab::open() else { return };
    // ARP, VLAN, and neighbours of IPv4 and IPv6. Behind each stands what would be balanced.
    for ethertype in [0x0806_u16, 0x8100, 0x0801, 0x0008, 0x86de, 0xdd86, 0] {
        for packet in [v4(), v6()] {
            let sent = with(&packet, ETHERTYPE, ethertype.to_be_bytes());
            let seen = lab.send(&sent);
            assert!(
                seen.is_only(PASS, &sent),
                "{ethertype:#06x}: {}",
                seen.action
            );
        }
    }
    assert_eq!([lab.send(&v4()).action, lab.send(&v6()).action], [TX; 2]);
}

#[test]
fn neither_tcp_nor_udp_passes_whatever_vips_there_are() {
    let Some(mut lab) = Lab::open() else { return };
    for protocol in (0..=255).filter(|protocol| ![TCP, UDP].contains(protocol)) {
        let sent = with(&v4(), PROTOCOL, [protocol]);
        let seen = lab.send(&sent);
        assert!(
            seen.is_only(PASS, &sent),
            "IPv4, {protocol}: {}",
            seen.action
        );

        let sent = with(&v6(), NEXT_HEADER, [protocol]);
        let seen = lab.send(&sent);
        let action = if protocol == IPV6_FRAGMENT {
            DROP
        } else {
            PASS
        };
        assert!(
            seen.is_only(action, &sent),
            "IPv6, {protocol}: {}",
            seen.action
        );
    }
}

#[test]
fn a_vip_is_an_address_a_port_and_a_protocol() {
    let Some(mut lab) = Lab::open() else { return };
    let tcp = lab.send(&packet(CLIENT, WEB, TCP));
    let udp = lab.send(&packet(CLIENT, WEB, UDP));
    assert_eq!(
        [tcp.server(), udp.server()],
        [TCP, UDP].map(|one| in_ring(WEB, one))
    );
    assert_eq!(udp.gained.vips[number(WEB, UDP) as usize], [1, 20 + 8 + 16]);

    let other_protocol = packet(CLIENT, TCP_ONLY, UDP);
    assert!(lab.send(&other_protocol).is_only(PASS, &other_protocol));
    assert_eq!(lab.send(&packet(CLIENT, TCP_ONLY, TCP)).action, TX);

    // Neighbours in port and address, the ports swapped, IPv6 that differs in one word only.
    for (from, to) in [
        (CLIENT, "10.10.1.1:81"),
        (CLIENT, "10.10.1.1:20480"),
        (CLIENT, "10.10.1.3:80"),
        ("10.10.1.1:80", "10.10.2.1:12345"),
        (CLIENT_V6, "[fd01:100::1]:80"),
        (CLIENT_V6, "[fd00:100:0:1::1]:80"),
        (CLIENT_V6, "[fd00:100::1:0:1]:80"),
        (CLIENT_V6, "[fd00:100::2]:80"),
    ] {
        let sent = packet(from, to, TCP);
        assert!(lab.send(&sent).is_only(PASS, &sent), "{to}");
    }
}

#[test]
fn an_unknown_vip_passes_until_it_is_known() {
    let Some(mut lab) = Lab::open() else { return };
    for (from, vip) in [(CLIENT, "10.10.9.9:80"), (CLIENT_V6, "[fd00:9900::1]:80")] {
        let sent = packet(from, vip, TCP);
        assert!(lab.send(&sent).is_only(PASS, &sent), "{vip}");
        let like = if from == CLIENT { WEB } else { WEB_V6 };
        lab.add_vip(vip, TCP, 0, number(like, TCP));
        let seen = lab.send(&sent);
        assert_eq!(
            (seen.action, seen.server()),
            (TX, in_ring(like, TCP)),
            "{vip}"
        );
    }
}

#[test]
fn a_packet_cut_short_passes_or_is_dropped() {
    let Some(mut lab) = Lab::open() else { return };
    const ETHERNET: usize = 14;
    for (from, vip, ip) in [(CLIENT, WEB, 20), (CLIENT_V6, WEB_V6, 40)] {
        for (protocol, transport) in [(TCP, 20), (UDP, 8)] {
            let whole = packet(from, vip, protocol);
            for length in ETHERNET..=whole.len() {
                let sent = &whole[..length];
                let seen = lab.send(sent);
                let case = format!("{vip} {protocol}, {length} bytes: {}", seen.action);
                if length < ETHERNET + ip {
                    assert!(seen.is_only(DROP, sent), "{case}");
                } else if length < ETHERNET + ip + transport {
                    assert!(seen.is_only(PASS, sent), "{case}");
                } else {
                    assert_eq!(seen.action, TX, "{case}");
                    assert!(seen.packet.ends_with(&sent[ETHERNET..]), "{case}");
                }
            }
        }
    }
}
