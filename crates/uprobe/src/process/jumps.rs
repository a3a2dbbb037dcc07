//! The jumps in a process, in memory that the tool and its tracer process share.

#![allow(unsafe_code, reason = "memory is shared with another process")]

use super::{
    error::{Error, Result},
    maps::{Mapping, Origin},
    memory::Memory,
    replaced::Replaced,
    site::JUMP,
};
use rustix::mm::{MapFlags, ProtFlags};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

/// How many jumps there may be at once.
const ENTRIES: usize = 4096;
const SIZE: usize = size_of::<[Entry; ENTRIES]>();
/// In the place of a semaphore's number: it is raised, whatever it holds.
const RAISED: u64 = u64::MAX;

/// One jump: no address where there is none.
#[derive(Default)]
struct Entry {
    address: AtomicU64,
    original: AtomicU64,
    jump: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    offset: AtomicU64,
    /// The address of the semaphore, 0 where there is none.
    semaphore: AtomicU64,
    /// What it holds if it is raised, or [`RAISED`].
    number: AtomicU64,
}

/// Whether the semaphore of a jump is raised for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Semaphore {
    /// There is none to lower.
    Nothing,
    /// The one at this address is, if it holds this number: the tool is about to change it.
    MaybeRaised(u64, u16),
    /// The one at this address is.
    Raised(u64),
}

/// The jumps in the process. The list outlives the tool.
#[derive(Debug)]
pub(super) struct Jumps {
    entries: NonNull<[Entry; ENTRIES]>,
}

// SAFETY: the mapping belongs to this value, and is used through atomics alone.
unsafe impl Send for Jumps {}
// SAFETY: as above.
unsafe impl Sync for Jumps {}

impl Jumps {
    pub(super) fn new() -> Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, where the kernel likes, used through the pointer alone. Zeroes are valid entries.
        let mapping = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), SIZE, access, flags) };
        let mapping = mapping.map_err(|error| Error::system("mmap of the list of jumps", error))?;
        let entries = NonNull::new(mapping.cast()).expect("the kernel maps nothing at 0");
        Ok(Jumps { entries })
    }

    /// Adds a jump. `None` where there are too many.
    pub(super) fn add(&self, address: u64, replaced: &Replaced) -> Option<()> {
        let mut entries = self.entries().iter();
        let free = entries.find(|entry| entry.address.load(Ordering::Relaxed) == 0)?;
        for (field, value) in [
            (&free.original, to_number(replaced.original)),
            (&free.jump, to_number(replaced.jump)),
            (&free.device, replaced.origin.device),
            (&free.inode, replaced.origin.inode),
            (&free.offset, replaced.origin.offset),
            (&free.semaphore, 0),
        ] {
            field.store(value, Ordering::Relaxed);
        }
        free.address.store(address, Ordering::Release);
        Some(())
    }

    /// Says whether the semaphore of a jump is raised.
    pub(super) fn set_semaphore(&self, address: u64, semaphore: Semaphore) {
        let (at, number) = match semaphore {
            Semaphore::Nothing => (0, 0),
            Semaphore::MaybeRaised(at, number) => (at, u64::from(number)),
            Semaphore::Raised(at) => (at, RAISED),
        };
        let mut entries = self.entries().iter();
        let entry = entries.find(|entry| entry.address.load(Ordering::Relaxed) == address);
        if let Some(entry) = entry {
            entry.number.store(number, Ordering::Release);
            entry.semaphore.store(at, Ordering::Release);
        }
    }

    /// Takes a jump out.
    pub(super) fn remove(&self, address: u64) {
        for entry in self.entries() {
            let _ = entry
                .address
                .compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let mut entries = self.entries().iter();
        entries.all(|entry| entry.address.load(Ordering::Acquire) == 0)
    }

    /// Takes all jumps out, restores the bytes and lowers the semaphores, where their files are still mapped.
    pub(super) fn restore(&self, memory: &Memory, all: &[Mapping]) {
        for entry in self.entries() {
            let address = entry.address.load(Ordering::Acquire);
            if address != 0 && !entry.replaced().is_mapped(address, memory, all) {
                entry.address.store(0, Ordering::Release);
            }
        }
        // The one that may or may not be raised first, before others that raised the same change its number.
        for is_certain in [false, true] {
            for entry in self.entries() {
                entry.lower(memory, is_certain);
            }
        }
        for entry in self.entries() {
            let address = entry.address.load(Ordering::Acquire);
            if address != 0 {
                // The tool that would report an error is gone.
                let _ = entry.replaced().restore(address, memory);
                entry.address.store(0, Ordering::Release);
            }
        }
    }

    fn entries(&self) -> &[Entry; ENTRIES] {
        // SAFETY: the mapping lives as long as this value, and holds valid entries: all their fields are atomics.
        unsafe { self.entries.as_ref() }
    }
}

impl Drop for Jumps {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left. The other process has its own.
        let _ = unsafe { rustix::mm::munmap(self.entries.as_ptr().cast(), SIZE) };
    }
}

impl Entry {
    fn replaced(&self) -> Replaced {
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Replaced {
            original: to_bytes(load(&self.original)),
            jump: to_bytes(load(&self.jump)),
            origin: Origin {
                device: load(&self.device),
                inode: load(&self.inode),
                offset: load(&self.offset),
            },
            semaphore: None,
        }
    }

    /// Lowers a semaphore that is certainly raised, or one that may be.
    fn lower(&self, memory: &Memory, is_certain: bool) {
        let at = self.semaphore.load(Ordering::Acquire);
        let raised = self.number.load(Ordering::Acquire);
        if self.address.load(Ordering::Acquire) == 0 || at == 0 || (raised == RAISED) != is_certain
        {
            return;
        }
        if let Ok(number) = memory.read_u16(at)
            && (is_certain || u64::from(number) == raised)
        {
            let _ = memory.write(at, &number.saturating_sub(1).to_le_bytes());
        }
        self.semaphore.store(0, Ordering::Release);
    }
}

fn to_number(bytes: [u8; JUMP]) -> u64 {
    let mut number = [0; 8];
    number[..JUMP].copy_from_slice(&bytes);
    u64::from_le_bytes(number)
}

fn to_bytes(number: u64) -> [u8; JUMP] {
    let mut bytes = [0; JUMP];
    bytes.copy_from_slice(&number.to_le_bytes()[..JUMP]);
    bytes
}
