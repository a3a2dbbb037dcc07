//! Reading a whole per-CPU array in one system call.

#![allow(unsafe_code)]

use std::{mem, os::fd::AsRawFd as _, ptr};

use libbpf_rs::{MapCore, libbpf_sys, num_possible_cpus};

use crate::{
    error::{Result, map_failed},
    plain::{Plain, read},
};

/// The values of every entry on `cpu`.
pub(crate) fn read_cpu<T: Plain>(
    map: &impl MapCore,
    name: &'static str,
    cpu: u32,
) -> Result<Vec<T>> {
    let failed = || map_failed(name, "reading all entries");
    let possible = num_possible_cpus().map_err(failed())?;
    let slot = mem::size_of::<T>().next_multiple_of(8);
    let entries = map.max_entries() as usize;
    let mut keys = vec![0u32; entries];
    let mut values = vec![0u8; entries * possible * slot];
    let mut count = map.max_entries();
    let mut position = 0u32;
    // SAFETY: keys and values have room for `count` entries of this map (4-byte keys; a value for
    // each possible CPU, rounded up to 8 bytes); `position` has room for a key, as an array asks.
    let failure = unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            ptr::null_mut(),
            ptr::from_mut(&mut position).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &mut count,
            ptr::null(),
        )
    };
    // The kernel says ENOENT when it has reached the end, which is where this wants to be.
    if failure < 0 && failure != -libc::ENOENT {
        return Err(failed()(libbpf_rs::Error::from_raw_os_error(-failure)));
    }
    Ok(values
        .chunks_exact(possible * slot)
        .take(count as usize)
        .filter_map(|entry| read(entry.get(cpu as usize * slot..)?))
        .collect())
}
