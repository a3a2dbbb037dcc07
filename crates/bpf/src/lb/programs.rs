//! Which program of the object runs what.

use super::{Datapath, LbVariant, Reset, TimedBody};
use crate::timing::Loop;

/// What the names of a datapath's programs begin with.
pub(super) fn prefix(datapath: Datapath) -> &'static str {
    match datapath {
        Datapath::Right => "lb",
        Datapath::OuterByte => "outer_byte",
        Datapath::NoCounter => "no_counter",
        Datapath::UdpExpired => "udp_expired",
        Datapath::RingSlot => "ring_slot",
        Datapath::NoFloodCheck => "no_flood_check",
    }
}

/// Whether a program is one that this kernel and this datapath need.
pub(super) fn wanted(program: &str, variant: LbVariant) -> bool {
    let has_prefix = |prefix: &str| {
        program
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    let ours = has_prefix(prefix(variant.datapath))
        || variant.datapath == Datapath::Right && has_prefix("floor");
    let bpf_loop = program.ends_with(Loop::BpfLoop.suffix());
    ours && (program.ends_with("_replay") || bpf_loop == (variant.looping == Loop::BpfLoop))
}

/// The timed program. A faulty datapath has one for IPv4 sources only.
pub(super) fn timed(variant: LbVariant, body: TimedBody, reset: Reset) -> String {
    let (prefix, reset) = match (variant.datapath, body) {
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
    format!("{prefix}_{reset}{}", variant.looping.suffix())
}
