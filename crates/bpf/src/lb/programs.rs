//! Which program of the object runs what.

use libbpf_rs::{ProgramMut, skel::OpenSkel as _};

use super::{Body, Datapath, Reset, Variant};
use crate::{
    skel::xdp_lb::{OpenXdpLbSkel, XdpLbProgs},
    timing::Loop,
};

/// Loads only what this kernel and this datapath need.
pub(super) fn choose_programs(open: &mut OpenXdpLbSkel<'_>, variant: Variant) {
    let Variant {
        datapath, looping, ..
    } = variant;
    let prefixes: &[&str] = match datapath {
        Datapath::Right => &["lb_", "floor_"],
        Datapath::OuterByte => &["outer_byte_"],
        Datapath::NoCounter => &["no_counter_"],
        Datapath::UdpExpired => &["udp_expired_"],
        Datapath::RingSlot => &["ring_slot_"],
    };
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix));
        let bpf_loop = name.ends_with(Loop::BpfLoop.suffix());
        let loops = name.ends_with("_replay") || bpf_loop == (looping == Loop::BpfLoop);
        program.set_autoload(ours && loops);
    }
}

/// The timed program. A faulty datapath has one for IPv4 sources only.
pub(super) fn timed<'a>(
    programs: &'a XdpLbProgs<'static>,
    variant: Variant,
    body: Body,
    reset: Reset,
) -> &'a ProgramMut<'static> {
    let [can_loop, bpf_loop] = match (variant.datapath, body, reset) {
        (Datapath::Right, Body::Datapath, Reset::None) => {
            [&programs.lb_none, &programs.lb_none__bpf_loop]
        }
        (Datapath::Right, Body::Datapath, Reset::Strip) => {
            [&programs.lb_strip, &programs.lb_strip__bpf_loop]
        }
        (Datapath::Right, Body::Datapath, Reset::StripV4) => {
            [&programs.lb_strip_v4, &programs.lb_strip_v4__bpf_loop]
        }
        (Datapath::Right, Body::Datapath, Reset::StripV6) => {
            [&programs.lb_strip_v6, &programs.lb_strip_v6__bpf_loop]
        }
        (Datapath::OuterByte, Body::Datapath, _) => [
            &programs.outer_byte_strip_v4,
            &programs.outer_byte_strip_v4__bpf_loop,
        ],
        (Datapath::NoCounter, Body::Datapath, _) => [
            &programs.no_counter_strip_v4,
            &programs.no_counter_strip_v4__bpf_loop,
        ],
        (Datapath::UdpExpired, Body::Datapath, _) => [
            &programs.udp_expired_strip_v4,
            &programs.udp_expired_strip_v4__bpf_loop,
        ],
        (Datapath::RingSlot, Body::Datapath, _) => [
            &programs.ring_slot_strip_v4,
            &programs.ring_slot_strip_v4__bpf_loop,
        ],
        (_, Body::Empty, Reset::None) => [&programs.floor_none, &programs.floor_none__bpf_loop],
        (_, Body::Empty, Reset::Strip) => [&programs.floor_strip, &programs.floor_strip__bpf_loop],
        (_, Body::Empty, Reset::StripV4) => {
            [&programs.floor_strip_v4, &programs.floor_strip_v4__bpf_loop]
        }
        (_, Body::Empty, Reset::StripV6) => {
            [&programs.floor_strip_v6, &programs.floor_strip_v6__bpf_loop]
        }
    };
    match variant.looping {
        Loop::CanLoop => can_loop,
        Loop::BpfLoop => bpf_loop,
    }
}
