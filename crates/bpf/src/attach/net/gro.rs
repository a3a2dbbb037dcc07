//! Generic receive offload of an interface, which gives a veth its own NAPI (Linux 5.13, d3256efd8e8b).

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    ptr,
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// ETHTOOL_SGRO of linux/ethtool.h.
const SET_GRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Turns it on for an interface of the calling thread's namespace.
pub(super) fn turn_on(interface: &str) -> io::Result<()> {
    let any: OwnedFd = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut value = EthtoolValue {
        command: SET_GRO,
        data: 1,
    };
    // SAFETY: of this plain structure of the kernel, all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0, which ends the name.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = ptr::from_mut(&mut value).cast();
    // SAFETY: the request names a value of the size that its command says, and both outlive the call.
    match unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
