//! Which program of the object runs what. The names are without their loop's ending.

use super::{Datapath, Reset, TimedBody};

const RESETS: [Reset; 4] = [Reset::None, Reset::Strip, Reset::StripV4, Reset::StripV6];

/// Returns the beginning of the names of a datapath's programs.
fn prefix(datapath: Datapath) -> &'static str {
    match datapath {
        Datapath::Right => "lb",
        Datapath::OuterByte => "outer_byte",
        Datapath::NoCounter => "no_counter",
        Datapath::UdpExpired => "udp_expired",
        Datapath::RingSlot => "ring_slot",
        Datapath::NoFloodCheck => "no_flood_check",
    }
}

/// The timed programs of a datapath; those of the right one include the floors.
pub(super) fn all_timed(datapath: Datapath) -> Vec<String> {
    if datapath != Datapath::Right {
        return vec![timed(datapath, TimedBody::Datapath, Reset::StripV4)];
    }
    let bodies = [TimedBody::Datapath, TimedBody::Empty];
    let names = bodies.map(|body| RESETS.map(|reset| timed(datapath, body, reset)));
    names.into_iter().flatten().collect()
}

/// The timed program. A faulty datapath has one for IPv4 sources only.
pub(super) fn timed(datapath: Datapath, body: TimedBody, reset: Reset) -> String {
    let (prefix, reset) = match (datapath, body) {
        (_, TimedBody::Empty) => ("floor", reset),
        (Datapath::Right, TimedBody::Datapath) => ("lb", reset),
        (faulty, TimedBody::Datapath) => (prefix(faulty), Reset::StripV4),
    };
    let reset = match reset {
        Reset::None => "none",
        Reset::Strip => "strip",
        Reset::StripV4 => "strip_v4",
        Reset::StripV6 => "strip_v6",
    };
    format!("{prefix}_{reset}")
}

/// The replay of a datapath.
pub(super) fn replay(datapath: Datapath) -> String {
    format!("{}_replay", prefix(datapath))
}
