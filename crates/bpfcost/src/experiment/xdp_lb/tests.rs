//! The scenarios against the table of their specification, and the model against itself.

use std::{collections::HashSet, net::IpAddr};

use super::{
    model, packet,
    scenario::{self, Scenario},
    sequence::{Sequence, low_word},
};

const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;

/// Name, action, bytes in and out, VIP number and source mask.
type Specified = (&'static str, u32, usize, usize, Option<u32>, u32);

/// Study 002's scenarios, in its order.
const SPECIFIED: [Specified; 24] = [
    ("tcp-v4-lru-hit", TX, 70, 90, Some(0), 0),
    ("tcp-v4-ch", TX, 70, 90, Some(1), 0),
    ("tcp-v6-lru-hit", TX, 90, 130, Some(10), 0),
    ("tcp-v6-ch", TX, 90, 130, Some(12), 0),
    ("udp-v4-lru-hit", TX, 58, 78, Some(2), 0),
    ("udp-v6-lru-hit", TX, 78, 118, Some(14), 0),
    ("tcp-v4v6-lru-hit", TX, 70, 110, Some(13), 0),
    ("tcp-v4-lru-diverse", TX, 70, 90, Some(0), 0xfff),
    ("tcp-v4-ch-diverse", TX, 70, 90, Some(1), 0xfff),
    ("tcp-v6-lru-diverse", TX, 90, 130, Some(10), 0xfff),
    ("tcp-v6-ch-diverse", TX, 90, 130, Some(12), 0xfff),
    ("udp-v4-lru-diverse", TX, 58, 78, Some(2), 0xfff),
    ("tcp-v4-syn", TX, 70, 90, Some(0), 0),
    ("tcp-v4-rst-miss", TX, 70, 90, Some(0), 0xff_ffff),
    ("tcp-v4-lru-miss", TX, 70, 90, Some(0), 0xff_ffff),
    ("udp-v4-lru-miss", TX, 58, 78, Some(2), 0xff_ffff),
    ("tcp-v4-lru-warmup", TX, 70, 90, Some(0), 0xfff),
    ("pass-v4-no-vip", PASS, 70, 70, None, 0),
    ("pass-v6-no-vip", PASS, 90, 90, None, 0),
    ("pass-v4-icmp", PASS, 50, 50, None, 0),
    ("pass-non-ip", PASS, 30, 30, None, 0),
    ("drop-v4-frag", DROP, 70, 70, None, 0),
    ("drop-v4-options", DROP, 74, 74, None, 0),
    ("drop-v6-frag", DROP, 98, 98, None, 0),
];

fn scenarios() -> Vec<Scenario> {
    scenario::all()
        .into_iter()
        .filter(|one| one.name != "lru-insert-empty")
        .collect()
}

fn output(scenario: &Scenario, source: IpAddr) -> Vec<u8> {
    let input = packet::with_source(&packet::input(scenario), source);
    match model::fate(scenario, source) {
        None => input,
        Some(fate) => packet::encapsulated(&input, source, scenario.source_port, fate.tunnel_end),
    }
}

#[test]
fn scenarios_are_those_of_the_specification() {
    let scenarios = scenarios();
    assert_eq!(scenarios.len(), SPECIFIED.len());
    for (scenario, (name, action, bytes_in, bytes_out, vip, mask)) in
        scenarios.iter().zip(SPECIFIED)
    {
        assert_eq!(scenario.name, name);
        assert_eq!(scenario.action as u32, action, "{name}");
        assert_eq!(packet::input(scenario).len(), bytes_in, "{name}");
        let expected = model::fate(scenario, scenario.source);
        assert_eq!(expected.map(|fate| fate.vip), vip, "{name}");
        assert_eq!(scenario.mask, mask, "{name}");
        if action == TX {
            assert_eq!(output(scenario, scenario.source).len(), bytes_out, "{name}");
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
        0x45, 0x00, 0x00, 76, 0, 0, 0, 0, 64, 4,
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
    assert_eq!(out[12..22], [0x86, 0xdd, 0x60, 0, 0, 0, 0, 76, 41, 64]);
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
        (model::expected(scenario, &sequence, ops).misses, distinct)
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
