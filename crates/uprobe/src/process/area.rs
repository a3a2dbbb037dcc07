//! Memory that is made in a process for probes: the block of the layout, and code near an image.

#![allow(
    unsafe_code,
    reason = "memory is mapped, and its numbers are read while others write them"
)]

mod gaps;

use super::{
    children::Children,
    error::{Error, Result},
    identity::Mark,
    layout::{
        AREA, CONTROL_OWNER, GUARD, IS_ON, Layout, SLOT, SLOTS, STATE, STATE_CHILDREN, STATE_LIMIT,
        STATE_MARK, STATE_MEMORY, STATE_ON, STATE_SCRATCH, STATE_SLOTS,
    },
    maps::{Mapping, mappings},
    memory::Memory,
    session::Session,
};
use rustix::{
    fd::{AsFd, OwnedFd},
    mm::{MapFlags, ProtFlags},
    process::{Pid, PidfdFlags, PidfdGetfdFlags},
};
use std::{
    fs::{File, OpenOptions},
    ops::Range,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

/// Largest distance from a site to its code: a jump reaches 2 GiB, less what lies between the two's ends.
const REACH: u64 = (1 << 31) - (16 << 20);
/// The bytes of code that are made at a time.
const CODE: u64 = 256 << 10;
/// The name of the shared memory in `/proc/PID/maps`.
const NAME: &[u8] = b"uprobe-areas\0";
pub(super) const MAPPED: &str = "/memfd:uprobe-areas (deleted)";

const NONE: u64 = libc::PROT_NONE as u64;
const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const PRIVATE: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
const NO_FILE: u64 = u64::MAX;
/// The calling thread, in place of a descriptor. That of its process has another number in each kernel.
const PIDFD_SELF: u64 = -10_000_i64 as u64;
const MADV_GUARD_INSTALL: u64 = 102;
/// Number of ranges that fit the scratch page.
const GUARDS_AT_ONCE: usize = 256;

/// The block of one process, and this process's mapping of its shared part.
#[derive(Debug)]
pub(super) struct Areas {
    pub(super) layout: Layout,
    shared: *mut u8,
    /// The memory of its children, if they are followed.
    pub(super) children: Option<Children>,
}

// SAFETY: the mapping belongs to this value, and its numbers are only read, as atomics.
unsafe impl Send for Areas {}
// SAFETY: as above.
unsafe impl Sync for Areas {}

impl Areas {
    /// Makes the private part of a block, with areas for so many threads. It is unmapped again where [`Self::create`] does not
    /// complete it.
    pub(super) fn prepare(session: &Session, memory: &Memory, threads: u64) -> Result<Layout> {
        let mut layout = Layout {
            base: 0,
            areas: (threads + 1).min(Layout::MAX_AREAS),
            children: None,
        };
        let size = layout.private() + layout.shared();
        layout.base = session.map([0, size, READ_WRITE, PRIVATE, NO_FILE, 0])?;
        let (base, private) = (layout.base, layout.private());
        // A thread touches a page or two of its area: no 2 MiB are to be cleared for it. Not all kernels have it.
        let small = libc::MADV_NOHUGEPAGE as u64;
        let small = [base, private, small, 0, 0, 0];
        let _ = session.call("madvise", libc::SYS_madvise, small);
        let wiped = [base, private, libc::MADV_WIPEONFORK as u64, 0, 0, 0];
        session.call("madvise", libc::SYS_madvise, wiped)?;
        install_guards(session, memory, layout)?;
        Ok(layout)
    }

    /// Takes the block over that an earlier tool, or another one, made in the process: its threads are on their areas
    /// already. `None` where there is none.
    pub(super) fn adopt(pid: i32, memory: &Memory) -> Result<Option<Self>> {
        let all = mappings(pid)?;
        let layout = |shared: &Mapping| {
            let areas = (shared.end - shared.start) / AREA;
            let base = shared.start.checked_sub(STATE + areas * AREA)?;
            let children = memory.read_u64(base + STATE_CHILDREN as u64).ok()?;
            Some(Layout {
                base,
                areas,
                children: (children != 0).then_some(children),
            })
        };
        // Off in a forked child, which needs one of its own.
        let is_on = |layout: &Layout| {
            let mut on = [0; 4];
            let read = memory.read(layout.base + STATE_ON as u64, &mut on);
            read.is_ok() && on == IS_ON.to_le_bytes()
        };
        let mut blocks = all
            .iter()
            .filter(|mapping| mapping.name == MAPPED)
            .filter_map(|shared| Some((shared, layout(shared).filter(is_on)?)));
        let Some((shared, layout)) = blocks.next() else {
            return Ok(None);
        };
        let file = open_mapped(pid, shared)?;
        let children = layout
            .children
            .and_then(|at| Children::adopt(pid, &all, at));
        Ok(Some(Areas {
            layout,
            shared: map(&file, layout)?,
            children: children.transpose()?,
        }))
    }

    /// Makes memory for forked children, where there is none: code that is assembled from then on uses it.
    pub(super) fn follow_children(
        &mut self,
        session: &Session,
        pid: i32,
        memory: &Memory,
    ) -> Result<()> {
        if self.children.is_none() {
            let scratch = self.layout.base + STATE_SCRATCH;
            let (at, children) = Children::create(session, pid, memory, scratch)?;
            memory.write(self.layout.base + STATE_CHILDREN as u64, &at.to_le_bytes())?;
            self.layout.children = Some(at);
            self.children = Some(children);
        }
        Ok(())
    }

    /// Reads the mark by which the process's memory is recognised.
    pub(super) fn mark(&self, memory: &Memory) -> Result<Mark> {
        Mark::read(memory, self.layout.base + STATE_MARK as u64)
    }

    /// Takes a slot that no other probe of the process has.
    pub(super) fn take_slot(&self, pid: i32, memory: &Memory) -> Result<u64> {
        let at = self.layout.base + STATE_SLOTS as u64;
        let slot = memory.read_u64(at)?;
        if slot >= SLOTS {
            return Err(Error::Full { pid });
        }
        memory.write(at, &(slot + 1).to_le_bytes())?;
        Ok(slot)
    }

    /// Takes bytes of each thread's memory, which are zero. Returns where they begin in an area's slots.
    pub(super) fn take_memory(&self, pid: i32, memory: &Memory, bytes: u64) -> Result<u64> {
        let at = self.layout.base + STATE_MEMORY as u64;
        let taken = memory.read_u64(at)?;
        let left = AREA - SLOTS * SLOT - taken;
        if bytes > left {
            return Err(Error::ThreadMemory { pid, bytes, left });
        }
        let whole = bytes.next_multiple_of(64);
        memory.write(at, &(taken + whole).to_le_bytes())?;
        Ok(SLOTS * SLOT + taken)
    }

    /// Bytes of each thread's memory.
    pub(super) fn read_memory(&self, offset: u64, bytes: usize) -> Vec<Vec<u8>> {
        assert!(offset + bytes as u64 <= AREA);
        let read = |area: u64| {
            let mut into = vec![0; bytes];
            // SAFETY: inside of the area's part of the mapping; `into` is this function's. Threads may write meanwhile.
            unsafe {
                let from = self.shared.add((area * AREA + offset) as usize);
                ptr::copy_nonoverlapping(from, into.as_mut_ptr(), bytes);
            }
            into
        };
        let own = (0..self.layout.areas).map(read);
        let children = self.children.iter();
        own.chain(children.flat_map(|children| children.read(offset, bytes)))
            .collect()
    }

    /// Writes into each thread's memory. What a thread writes at the same moment may win.
    pub(super) fn write_memory(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= AREA);
        for area in 0..self.layout.areas {
            // SAFETY: inside of the area's part of the mapping; `bytes` is the caller's. Threads may write meanwhile.
            unsafe {
                let to = self.shared.add((area * AREA + offset) as usize);
                ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            }
        }
    }

    /// Makes the shared part of a block, which is complete then and stays.
    pub(super) fn create(
        session: &Session,
        pid: i32,
        memory: &Memory,
        layout: Layout,
    ) -> Result<Self> {
        let (base, private, shared) = (layout.base, layout.private(), layout.shared());
        let name = base + STATE_SCRATCH;
        memory.write(name, NAME)?;
        let flags = u64::from(libc::MFD_CLOEXEC);
        let file = session.call(
            "memfd_create",
            libc::SYS_memfd_create,
            [name, flags, 0, 0, 0, 0],
        )?;
        let made = (|| {
            session.call("ftruncate", libc::SYS_ftruncate, [file, shared, 0, 0, 0, 0])?;
            let flags = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
            session.call(
                "mmap",
                libc::SYS_mmap,
                [base + private, shared, READ_WRITE, flags, file, 0],
            )?;
            take(pid, file as i32)
        })();
        session.call("close", libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
        let file = made?;

        let areas = Areas {
            layout,
            shared: map(&file, layout)?,
            children: None,
        };
        let limit = layout.areas as u32;
        memory.write(base + STATE_LIMIT as u64, &limit.to_le_bytes())?;
        let mark = Mark::random().to_le_bytes();
        memory.write(base + STATE_MARK as u64, &mark)?;
        // No thread's FS base is this, in the area of no thread.
        memory.write(layout.control(0) + CONTROL_OWNER, &u64::MAX.to_le_bytes())?;
        memory.write(base + STATE_ON as u64, &IS_ON.to_le_bytes())?;
        session.keep(base);
        Ok(areas)
    }

    /// The sum over all areas of the numbers of a slot: hits, and missed.
    pub(super) fn count(&self, slot: u64) -> (u64, u64) {
        let sum = |offset: u64| {
            (0..self.layout.areas)
                .map(|area| self.number(area * AREA + offset))
                .sum::<u64>()
        };
        let (hits, missed) = match &self.children {
            Some(children) => children.count(slot),
            None => (0, 0),
        };
        (sum(slot * SLOT) + hits, sum(slot * SLOT + 8) + missed)
    }

    fn number(&self, offset: u64) -> u64 {
        debug_assert!(offset + 8 <= self.layout.shared() && offset.is_multiple_of(8));
        // SAFETY: the offset lies in the mapping and is aligned; others write it, so that it is read as an atomic.
        unsafe { AtomicU64::from_ptr(self.shared.add(offset as usize).cast()) }
            .load(Ordering::Relaxed)
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left.
        let _ = unsafe { rustix::mm::munmap(self.shared.cast(), self.layout.shared() as usize) };
    }
}

/// Has the process fault where a stack overflows.
fn install_guards(session: &Session, memory: &Memory, layout: Layout) -> Result<()> {
    let guards: Vec<u64> = (0..layout.areas).map(|index| layout.area(index)).collect();
    let scratch = layout.base + STATE_SCRATCH;
    for some in guards.chunks(GUARDS_AT_ONCE) {
        let ranges = some.iter().flat_map(|&start| [start, GUARD]);
        let ranges: Vec<u8> = ranges.flat_map(u64::to_le_bytes).collect();
        memory.write(scratch, &ranges)?;
        let count = some.len() as u64;
        let arguments = [PIDFD_SELF, scratch, count, MADV_GUARD_INSTALL, 0, 0];
        let installed = session.call("process_madvise", libc::SYS_process_madvise, arguments);
        if matches!(installed, Ok(bytes) if bytes == count * GUARD) {
            continue;
        }
        // A kernel before 6.15, or memory that is locked.
        for &start in some {
            let arguments = [start, GUARD, NONE, 0, 0, 0];
            session.call("mprotect", libc::SYS_mprotect, arguments)?;
        }
    }
    Ok(())
}

/// Maps the slots of a block here as well.
fn map(file: impl AsFd, layout: Layout) -> Result<*mut u8> {
    let (access, size) = (ProtFlags::READ | ProtFlags::WRITE, layout.shared() as usize);
    // SAFETY: a new mapping, where the kernel likes; it is only used through the pointer.
    let ours =
        unsafe { rustix::mm::mmap(ptr::null_mut(), size, access, MapFlags::SHARED, file, 0) };
    Ok(ours
        .map_err(|error| Error::system("mmap of the slots", error))?
        .cast())
}

/// Opens the file of a mapping.
pub(super) fn open_mapped(pid: i32, mapping: &Mapping) -> Result<File> {
    let (start, end) = (mapping.start, mapping.end);
    let path = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let file = OpenOptions::new().read(true).write(true).open(&path);
    file.map_err(|error| Error::system(path, error))
}

/// Takes a copy of a file descriptor out of a process.
pub(super) fn take(pid: i32, file: i32) -> Result<OwnedFd> {
    let process = Pid::from_raw(pid).ok_or(Error::NoProcess { pid })?;
    let process = rustix::process::pidfd_open(process, PidfdFlags::empty())
        .map_err(|error| Error::system("pidfd_open", error))?;
    rustix::process::pidfd_getfd(process, file, PidfdGetfdFlags::empty())
        .map_err(|error| Error::system("pidfd_getfd", error))
}

/// Memory near an image: for code, which the process may execute but not write, or for data.
#[derive(Debug)]
pub(super) struct CodeArea {
    next: u64,
    end: u64,
}

impl CodeArea {
    /// Makes one of at least so many bytes that jumps from and to an address reach.
    pub(super) fn create(session: &Session, pid: i32, near: u64, size: u64) -> Result<Self> {
        let map = |arguments| session.map(arguments);
        Self::map(session, pid, near, size, READ_EXECUTE, map)
    }

    /// The same, for code that stays when the tool ends.
    pub(super) fn create_kept(session: &Session, pid: i32, near: u64, size: u64) -> Result<Self> {
        let map = |arguments| session.call("mmap", libc::SYS_mmap, arguments);
        Self::map(session, pid, near, size, READ_EXECUTE, map)
    }

    /// Makes one for data that stays, which the process may write but not execute.
    pub(super) fn create_data(session: &Session, pid: i32, near: u64) -> Result<Self> {
        let map = |arguments| session.call("mmap", libc::SYS_mmap, arguments);
        Self::map(session, pid, near, 0, READ_WRITE, map)
    }

    /// The free rest of one.
    pub(super) fn from_range(range: Range<u64>) -> Self {
        CodeArea {
            next: range.start,
            end: range.end,
        }
    }

    fn map(
        session: &Session,
        pid: i32,
        near: u64,
        size: u64,
        access: u64,
        map: impl Fn([u64; 6]) -> Result<u64>,
    ) -> Result<Self> {
        let size = size.next_multiple_of(CODE).max(CODE);
        let flags = PRIVATE | libc::MAP_FIXED_NOREPLACE as u64;
        for start in gaps::near(pid, near, size)? {
            match map([start, size, access, flags, NO_FILE, 0]) {
                Ok(at) if at == start => {
                    return Ok(CodeArea {
                        next: start,
                        end: start + size,
                    });
                }
                // A kernel before 4.17, which takes the address as a hint.
                Ok(at) => drop(session.call("munmap", libc::SYS_munmap, [at, size, 0, 0, 0, 0])?),
                // Another thread was faster, or the kernel keeps the place free.
                Err(Error::Remote { source, .. })
                    if matches!(
                        source.raw_os_error(),
                        Some(libc::EEXIST | libc::EPERM | libc::ENOMEM)
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoGap { pid, size })
    }

    /// Returns whether jumps from an address reach it, and it has so many bytes left.
    pub(super) fn fits(&self, near: u64, size: u64) -> bool {
        self.next.abs_diff(near) < REACH && self.next + size <= self.end
    }

    /// The first byte that is not taken.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Number of bytes that are not taken.
    pub(super) fn left(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Takes so many bytes, which begin on a cache line.
    pub(super) fn take(&mut self, size: u64) -> u64 {
        let at = self.next;
        self.next = (at + size).next_multiple_of(64);
        at
    }
}
