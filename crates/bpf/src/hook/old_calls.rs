//! System calls that the C library no longer makes, as it has newer ones for them, or never made. Programs are attached to
//! them all the same.

#![allow(unsafe_code)]

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{FromRawFd as _, OwnedFd},
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, libbpf_sys as sys};

/// Bytes of `perf_event_attr` in its first version, and the places of type and size, and of the flags, in words.
const ATTRIBUTES: usize = 64;
const TYPE_AND_SIZE: usize = 0;
const FLAGS: usize = 5;
const SOFTWARE: u64 = 1;
const DISABLED: u64 = 1;

/// stat(2) and lstat(2) of the root folder.
#[cfg(target_arch = "x86_64")]
pub fn stat() -> io::Result<()> {
    for call in [libc::SYS_stat, libc::SYS_lstat] {
        let mut into = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the path ends with a zero, and the kernel writes no more than a `stat`.
        checked(unsafe { libc::syscall(call, c"/".as_ptr(), into.as_mut_ptr()) })?;
    }
    Ok(())
}

/// tkill(2) of this thread with signal 0, which is none.
pub fn tkill() -> io::Result<()> {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: only the thread is looked up.
    checked(unsafe { libc::syscall(libc::SYS_tkill, thread, 0) }).map(drop)
}

/// perf_event_open(2): the CPU clock of this thread, which does not run; and close(2).
pub fn perf_event() -> io::Result<()> {
    let mut attributes = [0_u64; ATTRIBUTES / 8];
    attributes[TYPE_AND_SIZE] = SOFTWARE | (ATTRIBUTES as u64) << 32;
    attributes[FLAGS] = DISABLED;
    let (this_thread, any_cpu, no_group, no_flags) = (0, -1, -1, 0_u64);
    // SAFETY: the attributes are as long as they say.
    let opened = checked(unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            this_thread,
            any_cpu,
            no_group,
            no_flags,
        )
    })?;
    let opened = i32::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: it was just opened, and nothing else has it.
    drop(unsafe { OwnedFd::from_raw_fd(opened) });
    Ok(())
}

/// bpf(2): makes a map of one element, writes the element and reads it; and close(2).
pub fn bpf_map() -> io::Result<()> {
    const LENGTH: u32 = 4;
    let key = [0; LENGTH as usize];
    let value = [1; LENGTH as usize];
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let name = Some("stimulus");
    let map = MapHandle::create(MapType::Array, name, LENGTH, LENGTH, 1, &options)
        .map_err(io::Error::other)?;
    map.update(&key, &value, MapFlags::ANY)
        .map_err(io::Error::other)?;
    match map.lookup(&key, MapFlags::ANY).map_err(io::Error::other)? {
        Some(read) if read == value => Ok(()),
        other => Err(io::Error::other(format!("read {other:?}"))),
    }
}

fn checked(returned: libc::c_long) -> io::Result<libc::c_long> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_calls_are_made() {
        #[cfg(target_arch = "x86_64")]
        stat().expect("the root folder");
        tkill().expect("this thread");
        if crate::require::host() {
            perf_event().expect("an event that does not run");
            bpf_map().expect("a map");
        }
    }
}
