//! Steps 4 to 7: what tables remember, which misses count, and floods.

use bpfcost_bpf::lb::{Flood, now_ns};

use crate::lab::*;

const SECOND: u64 = 1_000_000_000;
/// New connections per second and CPU above which flows are not remembered.
const FLOOD_LIMIT: u64 = 100_000_000;
/// TCP flags of an IPv4 packet.
const FLAGS: usize = 14 + 20 + 13;
const SYN: u8 = 2;
const RST: u8 = 4;

/// VIP packets, misses, TCP misses, floods.
const HIT: [u64; 4] = [1, 0, 0, 0];
const TCP_MISS: [u64; 4] = [1, 1, 1, 0];
const UDP_MISS: [u64; 4] = [1, 1, 0, 0];
const FLOODED: [u64; 4] = [1, 1, 1, 1];

fn tcp(flags: u8) -> Vec<u8> {
    with(&packet(CLIENT, WEB, TCP), FLAGS, [flags])
}

#[test]
fn a_flow_is_remembered_and_goes_where_its_entry_says() {
    let Some(mut lab) = Lab::open() else { return };
    for (from, vip) in [(CLIENT, WEB), (CLIENT_V6, WEB_V6)] {
        let (sent, flow) = (packet(from, vip, TCP), flow(from, vip, TCP));
        let ring = in_ring(vip, TCP);
        assert_eq!(lab.lookup(&flow), None);
        let new = lab.send(&sent);
        assert_eq!((new.events(), new.server()), (TCP_MISS, ring));
        assert_eq!(lab.lookup(&flow), Some((ring, 0)), "TCP has no last use");
        let known = lab.send(&sent);
        assert_eq!((known.events(), known.server()), (HIT, ring));
        assert_eq!((&known.packet, known.action), (&new.packet, TX));
    }
    lab.remember(&flow(CLIENT, WEB, TCP), 0);
    let moved = lab.send(&packet(CLIENT, WEB, TCP));
    assert_eq!((moved.events(), moved.server()), (HIT, REMEMBERED));
    assert_eq!(lab.lookup(&flow(CLIENT, WEB, TCP)), Some((REMEMBERED, 0)));
}

#[test]
fn every_part_of_a_flow_tells_it_from_others() {
    let Some(mut lab) = Lab::open() else { return };
    lab.remember(&flow(CLIENT, WEB, TCP), 0);
    lab.remember(&flow(CLIENT_V6, WEB_V6, TCP), 0);
    for (from, vip, protocol) in [
        ("10.10.2.2:12345", WEB, TCP),
        ("10.10.2.1:12346", WEB, TCP),
        (CLIENT, TCP_ONLY, TCP),
        (CLIENT, WEB, UDP),
        ("[fd01:200::1]:12345", WEB_V6, TCP),
        ("[fd00:200::1:0:1]:12345", WEB_V6, TCP),
        ("[fd00:200::2]:12345", WEB_V6, TCP),
    ] {
        let seen = lab.send(&packet(from, vip, protocol));
        assert_eq!(seen.gained.events[1], 1, "{from} to {vip} by {protocol}");
    }
}

#[test]
fn a_reset_is_looked_up_but_not_remembered() {
    let Some(mut lab) = Lab::open() else { return };
    let flow = flow(CLIENT, WEB, TCP);
    let unknown = lab.send(&tcp(RST));
    assert_eq!(
        (unknown.events(), unknown.server()),
        (TCP_MISS, in_ring(WEB, TCP))
    );
    assert_eq!(lab.lookup(&flow), None);
    lab.remember(&flow, 0);
    let known = lab.send(&tcp(RST));
    assert_eq!((known.events(), known.server()), (HIT, REMEMBERED));
    assert_eq!(lab.lookup(&flow), Some((REMEMBERED, 0)), "nor forgotten");
}

#[test]
fn a_syn_is_not_looked_up_and_replaces_what_was_remembered() {
    let Some(mut lab) = Lab::open() else { return };
    let (flow, ring) = (flow(CLIENT, WEB, TCP), in_ring(WEB, TCP));
    lab.remember(&flow, 0);
    let known = lab.send(&tcp(SYN));
    assert_eq!((known.events(), known.server()), (TCP_MISS, ring));
    assert_eq!(lab.lookup(&flow), Some((ring, 0)));
    // A SYN with RST still replaces nothing.
    lab.remember(&flow, 0);
    assert_eq!(lab.send(&tcp(SYN | RST)).events(), TCP_MISS);
    assert_eq!(lab.lookup(&flow), Some((REMEMBERED, 0)));
}

#[test]
fn the_other_flags_change_nothing() {
    let Some(mut lab) = Lab::open() else { return };
    for flags in (0..=255).filter(|flags| flags & (SYN | RST) == 0) {
        let from = format!("10.10.2.1:{}", 1000 + u32::from(flags));
        let sent = with(&packet(&from, WEB, TCP), FLAGS, [flags]);
        assert_eq!(lab.send(&sent).events(), TCP_MISS, "{flags:#04x}");
        let entry = lab.lookup(&flow(&from, WEB, TCP));
        assert_eq!(entry, Some((in_ring(WEB, TCP), 0)), "{flags:#04x}");
        assert_eq!(lab.send(&sent).events(), HIT, "{flags:#04x}");
    }
}

#[test]
fn a_udp_flow_lives_30_seconds_from_its_last_use() {
    let Some(mut lab) = Lab::open() else { return };
    for (from, vip) in [(CLIENT, WEB), (CLIENT_V6, WEB_V6)] {
        let (sent, flow) = (packet(from, vip, UDP), flow(from, vip, UDP));
        let ring = in_ring(vip, UDP);
        for (age, events, server) in [(29, HIT, REMEMBERED), (31, UDP_MISS, ring)] {
            // Wraps where the machine has been up for less.
            lab.remember(&flow, now_ns().wrapping_sub(age * SECOND));
            let before = now_ns();
            let seen = lab.send(&sent);
            assert_eq!(seen.events(), events, "{vip}, aged {age} s");
            // The remembered server has IPv4 only, so nothing leaves for it from IPv6.
            if vip == WEB {
                assert_eq!(seen.server(), server, "aged {age} s");
            }
            let (real, last_use) = lab.lookup(&flow).expect("known from now on");
            assert_eq!(real, server, "{vip}, aged {age} s");
            assert!(
                (before..=now_ns()).contains(&last_use),
                "{vip}, aged {age} s"
            );
        }
    }
}

#[test]
fn a_new_udp_flow_is_used_when_it_is_first_seen() {
    let Some(mut lab) = Lab::open() else { return };
    let before = now_ns();
    assert_eq!(lab.send(&packet(CLIENT, WEB, UDP)).events(), UDP_MISS);
    let (real, first) = lab.lookup(&flow(CLIENT, WEB, UDP)).expect("remembered");
    assert_eq!(real, in_ring(WEB, UDP));
    assert!((before..=now_ns()).contains(&first));
    assert_eq!(lab.send(&packet(CLIENT, WEB, UDP)).events(), HIT);
    let (_, second) = lab.lookup(&flow(CLIENT, WEB, UDP)).expect("remembered");
    assert!(second > first);
}

#[test]
fn a_bypassing_vip_neither_asks_nor_tells_the_table() {
    let Some(mut lab) = Lab::open() else { return };
    for (protocol, missed) in [(TCP, TCP_MISS), (UDP, UDP_MISS)] {
        let (sent, flow) = (
            packet(CLIENT, BYPASS, protocol),
            flow(CLIENT, BYPASS, protocol),
        );
        for _ in 0..2 {
            assert_eq!(lab.send(&sent).events(), missed);
            assert_eq!(lab.lookup(&flow), None);
        }
        // Nor does it use an entry: that would be refreshed.
        let entry = (REMEMBERED, now_ns().wrapping_sub(SECOND));
        lab.remember(&flow, entry.1);
        let seen = lab.send(&sent);
        assert_eq!(
            (seen.events(), seen.server()),
            (missed, in_ring(BYPASS, protocol))
        );
        assert_eq!(lab.lookup(&flow), Some(entry));
    }
}

#[test]
fn each_cpu_has_a_table_of_its_own() {
    let Some(mut lab) = Lab::open() else { return };
    let [first, second] = lab.cpus[..] else {
        crate::require::skip("there is one CPU only");
        return;
    };
    let (sent, flow) = (packet(CLIENT, WEB, TCP), flow(CLIENT, WEB, TCP));
    lab.remember(&flow, 0);
    let before = lab.balancer.counters(first).expect("counters");
    assert_eq!(lab.send_on(second, &sent).events(), TCP_MISS);
    assert_eq!(lab.balancer.counters(first).expect("counters"), before);
    assert_eq!(lab.lookup_on(second, &flow), Some((in_ring(WEB, TCP), 0)));
    assert_eq!(lab.lookup_on(first, &flow), Some((REMEMBERED, 0)));
    assert_eq!(lab.send_on(second, &sent).events(), HIT);
    assert_eq!(lab.send_on(first, &sent).server(), REMEMBERED);
}

#[test]
fn misses_by_server_are_those_of_the_watched_vip() {
    let Some(mut lab) = Lab::open() else { return };
    let web = in_ring(WEB, TCP) as usize;
    let misses = |seen: &Observation| {
        let misses = &seen.gained.real_misses;
        (misses[web], misses.iter().sum::<u64>())
    };
    let sent = packet(CLIENT, WEB, TCP);
    assert_eq!(misses(&lab.send(&sent)), (1, 1));
    assert_eq!(misses(&lab.send(&sent)), (0, 0), "a hit");
    for (vip, protocol) in [(WEB, UDP), (BYPASS, TCP), (MIXED, TCP)] {
        let seen = lab.send(&packet(CLIENT, vip, protocol));
        assert_eq!((seen.gained.events[1], misses(&seen)), (1, (0, 0)), "{vip}");
    }
}

#[test]
fn new_connections_are_counted_by_the_second() {
    let Some(mut lab) = Lab::open() else { return };
    let cpu = lab.cpus[0];
    let clients = ["10.10.2.1:1", "10.10.2.1:2"].map(|from| packet(from, WEB, TCP));
    for (age, connections) in [(SECOND / 4, 58), (SECOND + SECOND / 4, 1)] {
        let flood = Flood {
            second_start_ns: now_ns().wrapping_sub(age),
            connections: 57,
        };
        lab.balancer.set_flood(flood).expect("flood");
        let before = now_ns();
        let syn = with(&clients[0], FLAGS, [SYN]);
        assert_eq!(lab.send(&syn).events(), TCP_MISS);
        let seen = lab.balancer.flood(cpu).expect("flood");
        assert_eq!(seen.connections, connections, "{age} ns into the second");
        let is_new = (before..=now_ns()).contains(&seen.second_start_ns);
        assert_eq!(is_new, connections == 1, "{age} ns into the second");
        assert!(is_new || seen.second_start_ns == flood.second_start_ns);

        // A known flow is no new connection; an unknown one is.
        assert_eq!(lab.send(&clients[0]).events(), HIT);
        let after = lab.balancer.flood(cpu).expect("flood");
        assert_eq!(after.connections, connections);
    }
    assert_eq!(lab.send(&clients[1]).events(), TCP_MISS);
    assert_eq!(lab.balancer.flood(cpu).expect("flood").connections, 2);
}

#[test]
fn a_flood_is_counted_and_not_remembered() {
    let Some(mut lab) = Lab::open() else { return };
    let (sent, flow) = (packet(CLIENT, WEB, TCP), flow(CLIENT, WEB, TCP));
    for (connections, events, known) in [
        (FLOOD_LIMIT, FLOODED, None),
        (FLOOD_LIMIT - 1, TCP_MISS, Some((in_ring(WEB, TCP), 0))),
    ] {
        let flood = Flood {
            second_start_ns: now_ns(),
            connections,
        };
        lab.balancer.set_flood(flood).expect("flood");
        let seen = lab.send(&sent);
        assert_eq!((seen.action, seen.events()), (TX, events), "{connections}");
        assert_eq!(seen.server(), in_ring(WEB, TCP));
        assert_eq!(lab.lookup(&flow), known, "{connections}");
    }
}
