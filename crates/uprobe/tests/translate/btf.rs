//! The types that a program with callbacks must come with: each of its functions is `static int f(void)`.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
};

use libbpf_rs::libbpf_sys;

/// The type id of that function.
pub(crate) const FUNCTION: u32 = 3;

pub(crate) fn load() -> io::Result<OwnedFd> {
    let strings = b"\0int\0f\0";
    let kind = |kind: u32| kind << 24;
    // An int of 4 bytes; its function without parameters; a static function of that type.
    let types: [u32; 10] = [1, kind(1), 4, 1 << 24 | 32, 0, kind(13), 1, 5, kind(12), 2];
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&0xeb9f_u16.to_le_bytes());
    bytes.extend_from_slice(&[1, 0]);
    let lengths = [
        24,
        0,
        4 * types.len() as u32,
        4 * types.len() as u32,
        strings.len() as u32,
    ];
    for word in lengths.iter().chain(&types) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(strings);
    // SAFETY: the kernel reads as many bytes as it is told; options are optional.
    let fd = unsafe {
        libbpf_sys::bpf_btf_load(
            bytes.as_ptr().cast(),
            bytes.len() as _,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made this descriptor, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    assert!(fd.as_raw_fd() >= 0);
    Ok(fd)
}
