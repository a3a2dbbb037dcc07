//! Memory that this process and the probed ones map.

#![allow(unsafe_code, reason = "memory that others write is read and written")]

use super::error::{Error, Result};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::MemfdFlags,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap},
};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64},
};

const PAGE: usize = 4096;

/// A file in memory, mapped here; `again_from` says where a second mapping of its rest begins, behind the first.
#[derive(Debug)]
pub(super) struct SharedMemory {
    file: OwnedFd,
    address: NonNull<u8>,
    /// The bytes of the file, and of all that is mapped.
    bytes: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to the process, and nothing here depends on the thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Memory of at least so many bytes, all of them zero.
    pub(super) fn create(bytes: usize, again_from: Option<usize>) -> Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE);
        let failed = |error| Error::system("memory for a map", error);
        let file = rustix::fs::memfd_create("uprobe-map", MemfdFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(failed)?;
        let mapped = bytes + again_from.map_or(0, |start| bytes - start);
        let (none, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let address = unsafe { mmap_anonymous(ptr::null_mut(), mapped, none, flags) };
        let address = address.map_err(failed)?;
        let memory = SharedMemory {
            file,
            address: NonNull::new(address.cast()).expect("nothing is mapped at 0"),
            bytes,
            mapped,
        };
        for (to, from) in [Some((0, 0)), again_from.map(|start| (bytes, start))]
            .into_iter()
            .flatten()
        {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let at = address.wrapping_byte_add(to);
            // SAFETY: over a part of the mapping just made, which nobody uses yet.
            let part = unsafe { mmap(at, bytes - from, access, flags, &memory.file, from as u64) };
            let part = part.map_err(failed)?;
            // No program waits for a page. Before Linux 5.14, each page comes with its first use.
            // SAFETY: the part just mapped.
            let _ = unsafe { madvise(part, bytes - from, Advice::LinuxPopulateWrite) };
        }
        Ok(memory)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns where it is in this process.
    pub(super) fn address(&self) -> u64 {
        self.address.as_ptr() as u64
    }

    /// All bytes, while no other process has them.
    pub(super) fn before_it_is_shared(&mut self) -> &mut [u8] {
        // SAFETY: the caller says that nobody else has it; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }
    }

    /// A number in it.
    pub(super) fn number(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.mapped);
        // SAFETY: inside of the mapping, aligned, and used through atomics alone.
        unsafe { AtomicU64::from_ptr(self.address.as_ptr().add(offset).cast()) }
    }

    /// A number of 4 bytes in it.
    pub(super) fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.mapped);
        // SAFETY: inside of the mapping, aligned, and used through atomics alone.
        unsafe { AtomicU32::from_ptr(self.address.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes out. Others may write them meanwhile.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset + into.len() <= self.mapped);
        // SAFETY: inside of the mapping; `into` is this process's alone.
        unsafe {
            ptr::copy_nonoverlapping(
                self.address.as_ptr().add(offset),
                into.as_mut_ptr(),
                into.len(),
            );
        }
    }

    /// Copies bytes in. Others may read them meanwhile.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.mapped);
        // SAFETY: inside of the mapping.
        unsafe {
            let to = self.address.as_ptr().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Overwrites bytes with zeros.
    pub(super) fn clear(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.mapped);
        // SAFETY: inside of the mapping.
        unsafe { ptr::write_bytes(self.address.as_ptr().add(offset), 0, bytes) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and no reference to it is left.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.mapped) };
    }
}
