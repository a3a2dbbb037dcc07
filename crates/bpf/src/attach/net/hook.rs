//! Links to hooks of an interface, for which libbpf-rs has no call, or none with flags.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
};

use libbpf_rs::libbpf_sys as sys;

use crate::feature::kernel;

/// A hook of an interface.
#[derive(Clone, Copy)]
pub(in crate::attach) enum Hook {
    /// Traffic control, outgoing, after whatever is there.
    Egress,
    /// XDP after the kernel has made its own structure of a frame.
    XdpGeneric,
    /// XDP in the driver.
    XdpNative,
}

/// Attaches a program to a hook of an interface in the calling thread's namespace.
pub(in crate::attach) fn link(
    program: &impl AsFd,
    interface: u32,
    hook: Hook,
) -> io::Result<OwnedFd> {
    let (attach, flags) = match hook {
        Hook::Egress => (sys::BPF_TCX_EGRESS, 0),
        Hook::XdpGeneric => (sys::BPF_XDP, sys::XDP_FLAGS_SKB_MODE),
        Hook::XdpNative => (sys::BPF_XDP, sys::XDP_FLAGS_DRV_MODE),
    };
    kernel::link_interface(program.as_fd(), interface as i32, attach, flags)
        .map_err(|no| io::Error::from_raw_os_error(no.errno))
}

/// Counts the programs attached to a hook of an interface in the calling thread's namespace, by the interface's own
/// account.
pub(in crate::attach) fn programs_at(interface: u32, hook: Hook) -> io::Result<u32> {
    let flags = match hook {
        Hook::Egress => return query(interface.cast_signed(), sys::BPF_TCX_EGRESS, 0),
        Hook::XdpGeneric => sys::XDP_FLAGS_SKB_MODE,
        Hook::XdpNative => sys::XDP_FLAGS_DRV_MODE,
    };
    let mut number = 0;
    // SAFETY: the number outlives the call.
    let answer =
        unsafe { sys::bpf_xdp_query_id(interface.cast_signed(), flags.cast_signed(), &mut number) };
    match answer {
        0.. => Ok(u32::from(number != 0)),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Counts the programs that run for the outgoing packets of a control group, its ancestors' among them.
pub(super) fn programs_on(group: BorrowedFd<'_>) -> io::Result<u32> {
    query(
        group.as_raw_fd(),
        sys::BPF_CGROUP_INET_EGRESS,
        sys::BPF_F_QUERY_EFFECTIVE,
    )
}

/// Counts the programs attached there.
fn query(target: i32, attach: sys::bpf_attach_type, flags: u32) -> io::Result<u32> {
    let mut options = sys::bpf_prog_query_opts {
        sz: size_of::<sys::bpf_prog_query_opts>() as _,
        query_flags: flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call, and have no room for numbers of programs, and say so.
    let answer = unsafe { sys::bpf_prog_query_opts(target, attach, &mut options) };
    match answer {
        // SAFETY: a number, in a union whose other members are the same number by older names.
        0.. => Ok(unsafe { options.__bindgen_anon_1.count }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
