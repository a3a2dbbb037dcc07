//! The scenarios of `xdp-lb` as a list: the packet, the state of the tables, and the expected result of each.
//!
//! Source: study 002 and the kernel's own benchmark of the same datapath; the numbers of packets,
//! ports, VIPs and masks are theirs, so that results can stand beside each other.

use std::net::IpAddr;

use bpfcost_bpf::lb::Reset;

use bpfcost_model::Sizing;

/// Operations of `tcp-v4-lru-warmup`: 6500 draws from 4096 sources touch about half of them anew.
const WARMUP_OPS: u64 = 6500;

/// Distinct flows that one trial may bring into a table: below a quarter of its 100,000 entries,
/// the kernel's LRU evicts nothing that the same trial brought in, and misses equal first touches.
pub(super) const FRESH_FLOWS: u64 = 24_000;

/// Maximum operations of a batch: half of the 2²³ turns that `can_loop` grants a program on kernels before 6.15, as
/// much as the wait for other CPUs leaves. Some 10 ms of the shortest path.
pub(super) const MAX_OPS: u64 = 1 << 22;

/// 4096 sources.
const SOURCES_4K: u32 = 0xfff;
/// 16.7 million sources.
const SOURCES_16M: u32 = 0xff_ffff;

/// The table that a scenario works on. Stress never shares one with what must stay warm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LruState {
    /// Holds the flows of all warm scenarios, far below its capacity.
    Warm,
    /// Filled to capacity with foreign flows before anything is measured.
    Full,
    /// Empty before each trial.
    Empty,
}

/// State of a scenario's flows in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flows {
    /// Every flow was put in before.
    Known,
    /// No flow of a trial was seen before; each is remembered when first touched.
    Fresh,
    /// Never asked for or never remembered: every operation misses.
    Missing,
    /// The packet ends before the table.
    Unasked,
}

/// Protocol that follows the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer4 {
    Tcp,
    TcpSyn,
    TcpRst,
    Udp,
    /// An ICMP protocol number with 16 bytes behind it, no header.
    Icmp,
}

/// Peculiarity of a packet's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketShape {
    Plain,
    /// ARP's ethertype, payload only.
    NotIp,
    /// The IPv4 more-fragments bit.
    MoreFragments,
    /// A 6-word IPv4 header of NOPs.
    Options,
    /// An IPv6 fragment header.
    FragmentHeader,
}

/// An action, as XDP numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Drop = 1,
    Pass = 2,
    Tx = 3,
}

/// One code path of the datapath.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) about: &'static str,
    pub(super) source: IpAddr,
    pub(super) source_port: u16,
    pub(super) vip: IpAddr,
    pub(super) vip_port: u16,
    pub(super) layer4: Layer4,
    pub(super) shape: PacketShape,
    /// The bits of a source that vary; 0 for a single flow.
    pub(super) mask: u32,
    pub(super) table: LruState,
    pub(super) flows: Flows,
    pub(super) action: Action,
    pub(super) sizing: Sizing,
}

impl Scenario {
    /// Returns the reset that undoes an operation before the next one.
    pub(super) fn reset(&self) -> Reset {
        match (self.action, self.mask, self.source) {
            (Action::Drop | Action::Pass, ..) => Reset::None,
            (Action::Tx, 0, _) => Reset::Strip,
            (Action::Tx, _, IpAddr::V4(_)) => Reset::StripV4,
            (Action::Tx, _, IpAddr::V6(_)) => Reset::StripV6,
        }
    }

    /// Returns whether the packet is UDP.
    pub(super) fn udp(&self) -> bool {
        self.layer4 == Layer4::Udp
    }
}

/// A scenario a line.
macro_rules! list {
    ($($scenario:expr;)+) => { vec![$($scenario),+] };
}

/// All scenarios, in the order of the study; `lru-insert-empty` is this project's own.
pub(super) fn all() -> Vec<Scenario> {
    use Layer4::{Icmp, Tcp, TcpRst, TcpSyn, Udp};

    const WEB: (&str, u16) = ("10.10.1.1", 80);
    const QUIC: (&str, u16) = ("10.10.1.1", 443);

    let single = |name, from, to, layer4, about| Scenario {
        group: "single flow",
        ..plain(name, from, to, layer4, about)
    };
    let diverse = |name, from, to, layer4, about| Scenario {
        group: "diverse flows, 4096 sources",
        mask: SOURCES_4K,
        ..plain(name, from, to, layer4, about)
    };
    let stress = |name, from, to, layer4, about| Scenario {
        group: "LRU stress",
        mask: SOURCES_16M,
        table: LruState::Full,
        flows: Flows::Fresh,
        sizing: Sizing::Calibrated {
            most: Some(FRESH_FLOWS),
        },
        ..plain(name, from, to, layer4, about)
    };
    let early = |name, from, to, layer4, action, about| Scenario {
        group: "early exits",
        flows: Flows::Unasked,
        action,
        ..plain(name, from, to, layer4, about)
    };
    let missing = |scenario| Scenario {
        flows: Flows::Missing,
        ..scenario
    };

    let tcp_v4 = ("10.10.2.1", 12345);
    let tcp_v6 = ("fd00:200::1", 12345);
    let udp_v4 = ("10.10.3.1", 11111);
    let (web_v6, quic_v6) = (("fd00:100::1", 80), ("fd00:100::1", 443));
    let (bypass_v4, bypass_v6) = (("10.10.1.2", 80), ("fd00:100::2", 80));
    let (from_v4, from_v6) = (("10.10.2.2", 54321), ("fd00:200::2", 54321));
    list! {
        single("tcp-v4-lru-hit", tcp_v4, WEB, Tcp, "IPv4 TCP, flow known to the LRU");
        missing(single("tcp-v4-ch", from_v4, bypass_v4, Tcp, "IPv4 TCP, consistent hash each time"));
        single("tcp-v6-lru-hit", tcp_v6, web_v6, Tcp, "IPv6 TCP, flow known to the LRU");
        missing(single("tcp-v6-ch", from_v6, bypass_v6, Tcp, "IPv6 TCP, consistent hash each time"));
        single("udp-v4-lru-hit", udp_v4, QUIC, Udp, "IPv4 UDP, known and fresh: a clock read more");
        single("udp-v6-lru-hit", ("fd00:200::3", 22222), quic_v6, Udp, "IPv6 UDP, known and fresh: a clock read more");
        single("tcp-v4v6-lru-hit", ("10.10.2.4", 12347), ("10.10.1.4", 80), Tcp, "IPv4 TCP to an IPv6 server, flow known to the LRU");
        diverse("tcp-v4-lru-diverse", tcp_v4, WEB, Tcp, "IPv4 TCP, all flows known");
        missing(diverse("tcp-v4-ch-diverse", from_v4, bypass_v4, Tcp, "IPv4 TCP, consistent hash"));
        diverse("tcp-v6-lru-diverse", tcp_v6, web_v6, Tcp, "IPv6 TCP, all flows known");
        missing(diverse("tcp-v6-ch-diverse", from_v6, bypass_v6, Tcp, "IPv6 TCP, consistent hash"));
        diverse("udp-v4-lru-diverse", udp_v4, QUIC, Udp, "IPv4 UDP, all flows known and fresh");
        Scenario { group: "TCP flags",
            ..missing(plain("tcp-v4-syn", ("10.10.8.2", 60001), WEB, TcpSyn, "SYN: skips the lookup, inserts each time")) };
        Scenario { group: "TCP flags", mask: SOURCES_16M, table: LruState::Full,
            ..missing(plain("tcp-v4-rst-miss", ("10.10.8.1", 60000), WEB, TcpRst, "RST of unknown flows: looks up, never inserts")) };
        stress("tcp-v4-lru-miss", tcp_v4, WEB, Tcp, "new IPv4 TCP flows into a full table");
        stress("udp-v4-lru-miss", udp_v4, QUIC, Udp, "new IPv4 UDP flows into a full table");
        Scenario { mask: SOURCES_4K, sizing: Sizing::Fixed(WARMUP_OPS),
            ..stress("tcp-v4-lru-warmup", tcp_v4, WEB, Tcp, "6500 packets of 4096 new flows: half miss") };
        Scenario { table: LruState::Empty,
            ..stress("lru-insert-empty", tcp_v4, WEB, Tcp, "new IPv4 TCP flows into an empty table") };
        early("pass-v4-no-vip", ("10.10.4.1", 33333), ("10.10.9.9", 80), Tcp, Action::Pass, "IPv4 TCP to no VIP: one hash lookup");
        early("pass-v6-no-vip", ("fd00:400::1", 33333), ("fd00:9900::1", 80), Tcp, Action::Pass, "IPv6 TCP to no VIP: one hash lookup");
        early("pass-v4-icmp", ("10.10.6.1", 0), ("10.10.1.1", 0), Icmp, Action::Pass, "neither TCP nor UDP");
        Scenario { shape: PacketShape::NotIp, ..early("pass-non-ip", tcp_v4, WEB, Tcp, Action::Pass, "ARP's ethertype") };
        Scenario { shape: PacketShape::MoreFragments,
            ..early("drop-v4-frag", ("10.10.5.1", 44444), WEB, Tcp, Action::Drop, "IPv4 with the more-fragments bit") };
        Scenario { shape: PacketShape::Options,
            ..early("drop-v4-options", ("10.10.7.1", 55555), WEB, Tcp, Action::Drop, "IPv4 options") };
        Scenario { shape: PacketShape::FragmentHeader,
            ..early("drop-v6-frag", ("fd00:500::1", 44444), web_v6, Tcp, Action::Drop, "IPv6 fragment header") };
    }
}

/// A known flow that is forwarded: what most scenarios differ from in a word or two.
fn plain(
    name: &'static str,
    from: (&str, u16),
    to: (&str, u16),
    layer4: Layer4,
    about: &'static str,
) -> Scenario {
    let address = |text: &str| {
        text.parse()
            .expect("addresses in this file are well formed")
    };
    Scenario {
        name,
        group: "",
        about,
        source: address(from.0),
        source_port: from.1,
        vip: address(to.0),
        vip_port: to.1,
        layer4,
        shape: PacketShape::Plain,
        mask: 0,
        table: LruState::Warm,
        flows: Flows::Known,
        action: Action::Tx,
        sizing: Sizing::Calibrated {
            most: Some(MAX_OPS),
        },
    }
}
