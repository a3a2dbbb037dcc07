//! The maps of a loaded object.

#![allow(unsafe_code)]

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

use libbpf_rs::MapType;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::error::{Error, Result};

/// A page of x86-64.
const PAGE_BYTES: usize = 4096;

/// A map that the kernel made. Dropping it closes the file descriptor.
#[derive(Debug)]
pub struct LoadedMap {
    /// Its name; that of a section's map ends with the section's, such as `probe.bss`.
    pub name: String,
    /// Its type.
    pub kind: MapType,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries.
    pub entries: u32,
    /// Whether user space can only read it (`.rodata`).
    pub is_read_only: bool,
    pub(super) fd: OwnedFd,
}

impl LoadedMap {
    /// The file descriptor, which the object's instructions have.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether its pages can be mapped: whether it is an array, as section maps are too.
    pub fn is_array(&self) -> bool {
        self.kind == MapType::Array
    }

    /// Whether it is a ring buffer.
    pub fn is_ring(&self) -> bool {
        self.kind == MapType::RingBuf
    }

    /// The distance of two values of an array, in bytes.
    pub fn stride(&self) -> usize {
        (self.value_size as usize).next_multiple_of(8)
    }

    /// Maps an array's own pages into this process: both sides see each other's writes.
    pub fn pages(&self) -> Result<Pages> {
        let failed = |source| Error::Pages {
            map: self.name.clone(),
            source,
        };
        if !self.is_array() {
            let kind = format!("it is no array, but {:?}", self.kind);
            return Err(failed(io::Error::new(io::ErrorKind::Unsupported, kind)));
        }
        let bytes = self.stride() * self.entries as usize;
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let length = NonZeroUsize::new(length).expect("arrays have entries");
        let access = if self.is_read_only {
            ProtFlags::READ
        } else {
            ProtFlags::READ | ProtFlags::WRITE
        };
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of this process.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                length.get(),
                access,
                MapFlags::SHARED,
                &self.fd,
                0,
            )
        };
        let address = address.map_err(|error| failed(error.into()))?;
        Ok(Pages {
            address: NonNull::new(address.cast()).expect("nothing is mapped at 0"),
            length,
        })
    }

    /// The descriptor's number, as instructions have it.
    pub(super) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

/// An array's pages in this process. Programs write them at any time: read through the address.
#[derive(Debug)]
pub struct Pages {
    address: NonNull<u8>,
    length: NonZeroUsize,
}

impl Pages {
    /// The address of the first value.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Copies bytes out. Programs may write them meanwhile.
    ///
    /// # Panics
    ///
    /// Beyond the end.
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.length());
        let mut into = vec![0; bytes];
        // SAFETY: inside of the mapping; `into` is this function's.
        unsafe {
            ptr::copy_nonoverlapping(self.address.as_ptr().add(offset), into.as_mut_ptr(), bytes);
        }
        into
    }

    /// Copies bytes in.
    ///
    /// # Panics
    ///
    /// Beyond the end.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length());
        // SAFETY: inside of the mapping.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.address.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    /// Bytes that are mapped: whole pages.
    pub fn length(&self) -> usize {
        self.length.get()
    }
}

// SAFETY: the mapping belongs to the process, and nothing here depends on the thread.
unsafe impl Send for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's; who kept its address has read that it ends here.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length.get()) };
    }
}
