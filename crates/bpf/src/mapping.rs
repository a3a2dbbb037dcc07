//! Maps mapped into memory (`BPF_F_MMAPABLE`): millions of entries written without a system call.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd as _;

use libbpf_rs::MapCore;
use memmap2::{MmapMut, MmapOptions};

use crate::{
    error::{Result, map_failed},
    plain::{Plain, bytes_of},
};

/// Maps all entries of an array.
pub(crate) fn map(map: &impl MapCore, name: &'static str) -> Result<MmapMut> {
    let stride = map.value_size().next_multiple_of(8) as usize;
    // SAFETY: the memory is the kernel's and lives as long as the mapping. BPF programs write to
    // it only while the caller waits for their run to end.
    unsafe {
        MmapOptions::new()
            .len(stride * map.max_entries() as usize)
            .map_mut(map.as_fd().as_raw_fd())
    }
    .map_err(map_failed(name, "mapping it"))
}

/// Writes an array's entries from the first on; values beyond its end are ignored.
pub(crate) fn fill<T: Plain>(
    target: &impl MapCore,
    name: &'static str,
    values: impl IntoIterator<Item = T>,
) -> Result<()> {
    let mut entries = map(target, name)?;
    let stride = size_of::<T>().next_multiple_of(8);
    for (entry, value) in entries.chunks_exact_mut(stride).zip(values) {
        entry[..size_of::<T>()].copy_from_slice(bytes_of(&value));
    }
    Ok(())
}

/// Memory that the kernel accounts for a map, in bytes; 0 where it does not report it.
pub(crate) fn memlock(map: &impl MapCore) -> u64 {
    map.query_fdinfo()
        .ok()
        .and_then(|info| info.memlock)
        .unwrap_or(0)
}
