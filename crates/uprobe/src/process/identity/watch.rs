//! Counters of the processes that share the memory of a watched one, kept by the kernel.
//!
//! `bpf/sharers.bpf.c` adds 1 before such a process runs. The tracer process takes the number off again once no process
//! shares the memory any more.

#![allow(unsafe_code, reason = "the counters are mapped")]

use crate::object::messages;
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, ObjectBuilder};
use rustix::{
    fd::{AsFd as _, BorrowedFd},
    mm::{MapFlags as Mapped, ProtFlags, mmap, munmap},
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// The compiled `bpf/sharers.bpf.c`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sharers.o"));
/// Number of processes that are watched at once, each with a counter of 8 bytes.
const COUNTERS: usize = 4096;

/// The programs with their maps: one set for all processes that are watched.
#[derive(Debug)]
struct Watch {
    links: Vec<Link>,
    watched: MapHandle,
    counters: MapHandle,
    mapped: NonNull<AtomicU64>,
    taken: Mutex<BTreeSet<u32>>,
}

// SAFETY: the mapping belongs to this value, and is used through atomics alone.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

#[derive(Debug)]
pub(in super::super) struct Watched {
    watch: Arc<Watch>,
    key: [u8; 8],
    number: u32,
}

impl Watched {
    /// The bytes of the counters, which the process maps.
    pub(in super::super) const BYTES: u64 = 8 * COUNTERS as u64;

    /// Watches a process. `None` where the kernel allows no such program.
    pub(in super::super) fn start(pid: i32) -> Option<Self> {
        let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino() as u32;
        let pid = pid.to_ne_bytes();
        let key = [namespace.to_ne_bytes(), pid].concat().try_into().ok()?;
        let watch = Watch::get()?;
        let number = watch.take()?;
        let watched = Watched { watch, key, number };
        watched.counter().store(0, Ordering::Release);
        let map = &watched.watch.watched;
        map.update(&key, &number.to_ne_bytes(), MapFlags::ANY)
            .ok()?;
        Some(watched)
    }

    /// The file of the counters.
    pub(in super::super) fn file(&self) -> BorrowedFd<'_> {
        self.watch.counters.as_fd()
    }

    /// The files that keep the watch up in a fork of this process.
    pub(in super::super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.watch.links.iter().map(|link| link.as_fd())
    }

    /// The offset of the process's counter in the file.
    pub(in super::super) fn offset(&self) -> u64 {
        8 * u64::from(self.number)
    }

    /// The number of new processes that share the memory, and were not taken off.
    pub(in super::super) fn count(&self) -> u64 {
        self.counter().load(Ordering::Acquire)
    }

    /// Takes off processes that are gone.
    pub(in super::super) fn take_off(&self, gone: u64) {
        self.counter().fetch_sub(gone, Ordering::AcqRel);
    }

    fn counter(&self) -> &AtomicU64 {
        // SAFETY: the number is below COUNTERS, all of which are mapped while the watch is there.
        unsafe { self.watch.mapped.add(self.number as usize).as_ref() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.watch.watched.delete(&self.key);
        self.watch.numbers().remove(&self.number);
    }
}

impl Watch {
    /// The watch of this process, started where there is none.
    fn get() -> Option<Arc<Self>> {
        static WATCH: Mutex<Weak<Watch>> = Mutex::new(Weak::new());
        let mut shared = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = shared.upgrade() {
            return Some(watch);
        }
        let (watch, _) = messages::collect(Self::start);
        let watch = Arc::new(watch?);
        *shared = Arc::downgrade(&watch);
        Some(watch)
    }

    fn start() -> Option<Self> {
        let object = ObjectBuilder::default().open_memory(OBJECT).ok()?;
        let object = object.load().ok()?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name)?;
            MapHandle::try_from(&map).ok()
        };
        let (watched, counters) = (map("watched")?, map("counters")?);
        let (access, bytes) = (ProtFlags::READ | ProtFlags::WRITE, 8 * COUNTERS);
        let file = counters.as_fd();
        // SAFETY: a new mapping at a place of the kernel's choice.
        let mapped =
            unsafe { mmap(ptr::null_mut(), bytes, access, Mapped::SHARED, file, 0) }.ok()?;
        let mut watch = Watch {
            links: Vec::new(),
            watched,
            counters,
            mapped: NonNull::new(mapped.cast()).expect("nothing is mapped at 0"),
            taken: Mutex::default(),
        };
        for program in object.progs_mut() {
            watch.links.push(program.attach().ok()?);
        }
        Some(watch)
    }

    fn take(&self) -> Option<u32> {
        let mut taken = self.numbers();
        let number = (0..COUNTERS as u32).find(|number| !taken.contains(number))?;
        taken.insert(number);
        Some(number)
    }

    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference to it is left.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), 8 * COUNTERS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_shares_the_memory_is_counted_before_it_runs() {
        let Some(watched) = Watched::start(std::process::id() as i32) else {
            return println!("skipped: this user, or kernel, has no such program");
        };
        let before = watched.count();
        // SAFETY: the child does nothing, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: no status is written.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
        std::thread::spawn(|| ()).join().unwrap();
        let forked = watched.count();
        // The standard library starts programs by posix_spawn.
        assert!(Command::new("true").status().unwrap().success());
        let spawned = watched.count();
        assert!(spawned > forked, "{before}, {forked}, {spawned}");
        watched.take_off(spawned);
    }
}
