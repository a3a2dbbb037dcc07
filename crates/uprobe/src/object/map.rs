//! The maps of a loaded object.

#![allow(unsafe_code)]

use std::{
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    ptr::{self, NonNull},
};

use libbpf_rs::{MapType, libbpf_sys};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{
    arena::Arena,
    error::{Error, Result},
};

/// A page of x86-64.
const PAGE_BYTES: usize = 4096;

/// A map that the kernel made. Dropping it closes the file descriptor.
#[derive(Debug)]
pub struct LoadedMap {
    /// The name; that of a section's map ends with the section's, such as `probe.bss`.
    pub name: String,
    /// The type.
    pub kind: MapType,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries.
    pub entries: u32,
    /// The number by which the kernel knows it.
    pub id: u32,
    /// True if programs can only read it (`BPF_F_RDONLY_PROG`, such as `.rodata`).
    pub is_read_only: bool,
    /// Its addresses, if it is an arena.
    pub arena: Option<Arena>,
    pub(super) fd: OwnedFd,
}

impl LoadedMap {
    /// A map of the kernel, by a file descriptor. Its name is what the kernel has of it: 15 bytes at most.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let mut info = libbpf_sys::bpf_map_info::default();
        let mut bytes = size_of_val(&info) as u32;
        let (number, into) = (fd.as_raw_fd(), (&raw mut info).cast());
        // SAFETY: the kernel writes at most so many bytes of what it knows of the map.
        let answer = unsafe { libbpf_sys::bpf_obj_get_info_by_fd(number, into, &raw mut bytes) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        let name = info.name.iter().take_while(|byte| **byte != 0);
        let name: Vec<u8> = name.map(|byte| byte.cast_unsigned()).collect();
        let kind = MapType::from(info.type_);
        Ok(LoadedMap {
            name: String::from_utf8_lossy(&name).into_owned(),
            kind,
            key_size: info.key_size,
            value_size: info.value_size,
            entries: info.max_entries,
            id: info.id,
            is_read_only: info.map_flags & libbpf_sys::BPF_F_RDONLY_PROG != 0,
            arena: Arena::from_info(kind, &info),
            fd,
        })
    }

    pub(super) fn with_name(self, name: String) -> Self {
        LoadedMap { name, ..self }
    }

    /// The file descriptor, which the object's instructions have.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns whether its pages can be mapped: whether it is an array, as section maps are too.
    pub fn is_array(&self) -> bool {
        self.kind == MapType::Array
    }

    /// Returns whether programs write records to it: a ring buffer, or an array of perf buffers.
    pub fn has_records(&self) -> bool {
        matches!(self.kind, MapType::RingBuf | MapType::PerfEventArray)
    }

    /// The distance of two values of an array, in bytes.
    pub fn stride(&self) -> usize {
        (self.value_size as usize).next_multiple_of(8)
    }

    /// Maps the own pages of an array or an arena into this process: both sides see each other's writes.
    pub fn pages(&self) -> Result<Pages> {
        let failed = |source| Error::Pages {
            map: self.name.clone(),
            source,
        };
        let (at, bytes) = match self.arena {
            // All processes have it at the same address.
            Some(arena) => (Some(arena.start), arena.bytes as usize),
            None if self.is_array() => (None, self.stride() * self.entries as usize),
            None => {
                let kind = format!("it is no array, but {:?}", self.kind);
                return Err(failed(io::Error::new(io::ErrorKind::Unsupported, kind)));
            }
        };
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let length = NonZeroUsize::new(length).expect("arrays have entries");
        let flags = match at {
            Some(_) => MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
            None => MapFlags::SHARED,
        };
        let access = if self.is_read_only {
            ProtFlags::READ
        } else {
            ProtFlags::READ | ProtFlags::WRITE
        };
        let at = at.map_or(ptr::null_mut(), |at| {
            ptr::with_exposed_provenance_mut(at as usize)
        });
        // SAFETY: a new mapping that replaces no other one touches no memory of this process.
        let address = unsafe { mmap(at, length.get(), access, flags, &self.fd, 0) };
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

    /// Makes the pages of a byte range present: reading one of an arena that can't be had would end the process.
    pub fn touch(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let end = (offset + bytes).next_multiple_of(PAGE_BYTES);
        assert!(end <= self.length());
        // SAFETY: inside of the mapping, whose pages are shared: none loses what is in it.
        let touched = unsafe {
            madvise(
                self.address.as_ptr().add(start).cast(),
                end - start,
                Advice::LinuxPopulateRead,
            )
        };
        Ok(touched?)
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
