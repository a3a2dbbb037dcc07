//! The jumps in a process, and what else there is to restore, in memory that the tool and its tracer process share.

#![allow(unsafe_code, reason = "memory is shared with another process")]

use super::{
    error::{Error, Result},
    handlers::Handlers,
    identity::Mark,
    mapped::Mapped,
    maps::{Mapping, Origin},
    memory::Memory,
    replaced::Replaced,
    site::JUMP,
    vdso::Patched,
};
use rustix::mm::{MapFlags, ProtFlags};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

/// Most jumps at once.
const ENTRIES: usize = 4096;
const SIZE: usize = size_of::<Shared>();
/// In the place of a semaphore's number: it is raised, whatever it holds.
const RAISED: u64 = u64::MAX;

/// Memory that both processes have.
struct Shared {
    /// The inode of the memory for children, 0 where there is none.
    children: AtomicU64,
    /// The address of the memory's mark, 0 where it is not known yet, and the mark.
    mark: [AtomicU64; 2],
    handlers: Handlers,
    vdso: Patched,
    mapped: Mapped,
    entries: [Entry; ENTRIES],
}

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
    /// The number that it holds if it is raised, or [`RAISED`].
    number: AtomicU64,
    /// The address of the semaphore that is raised wherever the jump is: in forked children.
    inherited: AtomicU64,
}

/// State of a jump's semaphore.
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
    shared: NonNull<Shared>,
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
        let shared = NonNull::new(mapping.cast()).expect("the kernel maps nothing at 0");
        Ok(Jumps { shared })
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
            (&free.inherited, 0),
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
            if at != 0 {
                entry.inherited.store(at, Ordering::Release);
            }
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

    /// Returns whether nothing but jumps is left to restore.
    pub(super) fn are_others_restored(&self) -> bool {
        self.handlers().is_empty() && self.vdso().is_empty()
    }

    /// The signal handlers that were replaced.
    pub(super) fn handlers(&self) -> &Handlers {
        &self.shared().handlers
    }

    /// The copy in the vDSO.
    pub(super) fn vdso(&self) -> &Patched {
        &self.shared().vdso
    }

    /// The memory to unmap.
    pub(super) fn mapped(&self) -> &Mapped {
        &self.shared().mapped
    }

    /// Returns whether no jump is there any more: the original bytes are, or other files.
    pub(super) fn are_gone(&self, memory: &Memory, all: &[Mapping]) -> bool {
        self.entries().iter().all(|entry| {
            let address = entry.address.load(Ordering::Acquire);
            let replaced = entry.replaced();
            let mut bytes = [0; JUMP];
            address == 0
                || !replaced.is_mapped(address, memory, all)
                || memory.read(address, &mut bytes).is_ok() && bytes == replaced.original
        })
    }

    /// Says by which mark the process's memory is recognised.
    pub(super) fn set_mark(&self, mark: Mark) {
        let [address, number] = &self.shared().mark;
        number.store(mark.number, Ordering::Release);
        address.store(mark.address, Ordering::Release);
    }

    pub(super) fn mark(&self) -> Option<Mark> {
        let [address, number] = &self.shared().mark;
        let address = address.load(Ordering::Acquire);
        let number = number.load(Ordering::Acquire);
        (address != 0).then_some(Mark { address, number })
    }

    /// Says by which memory children are known.
    pub(super) fn set_children(&self, inode: u64) {
        self.shared().children.store(inode, Ordering::Release);
    }

    /// The inode of that memory.
    pub(super) fn children(&self) -> Option<u64> {
        let inode = self.shared().children.load(Ordering::Acquire);
        (inode != 0).then_some(inode)
    }

    /// Restores the bytes of jumps at these addresses, or of all, in a forked child, and lowers the semaphores: it has
    /// inherited both.
    pub(super) fn restore_child(&self, memory: &Memory, all: &[Mapping], only: Option<&[u64]>) {
        for entry in self.entries() {
            let address = entry.address.load(Ordering::Acquire);
            let is_meant = address != 0 && only.is_none_or(|only| only.contains(&address));
            let replaced = entry.replaced();
            let mut bytes = [0; JUMP];
            if !is_meant
                || !replaced.is_mapped(address, memory, all)
                || memory.read(address, &mut bytes).is_err()
                || bytes != replaced.jump
            {
                continue;
            }
            let semaphore = entry.inherited.load(Ordering::Acquire);
            if let (1.., Ok(number @ 1..)) = (semaphore, memory.read_u16(semaphore)) {
                let _ = memory.write(semaphore, &(number - 1).to_le_bytes());
            }
            let _ = replaced.restore(address, memory, |write| {
                memory.write(write.address, &write.bytes)
            });
        }
    }

    /// Restores the bytes of all jumps and lowers the semaphores, where their files are still mapped. The list stays.
    pub(super) fn restore(&self, memory: &Memory, all: &[Mapping]) {
        let is_there = |entry: &&Entry| {
            let address = entry.address.load(Ordering::Acquire);
            address != 0 && entry.replaced().is_mapped(address, memory, all)
        };
        // The one that may or may not be raised first, before others that raised the same change its number.
        for is_certain in [false, true] {
            for entry in self.entries().iter().filter(is_there) {
                entry.lower(memory, is_certain);
            }
        }
        for entry in self.entries().iter().filter(is_there) {
            let address = entry.address.load(Ordering::Acquire);
            // The tool that would report an error is gone.
            let _ = entry.replaced().restore(address, memory, |write| {
                memory.write(write.address, &write.bytes)
            });
        }
    }

    fn entries(&self) -> &[Entry; ENTRIES] {
        &self.shared().entries
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping lives as long as this value, and holds valid entries: all fields are atomics.
        unsafe { self.shared.as_ref() }
    }
}

impl Drop for Jumps {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left. The other process has its own.
        let _ = unsafe { rustix::mm::munmap(self.shared.as_ptr().cast(), SIZE) };
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
