//! The identity of threads in one runtime.

use super::{
    super::{
        children::descendants,
        error::{Error, Result},
        layout::{FIRST_CHILD_HOLDER, STATE_HOLDERS},
        memory::Memory,
        runtime::Runtime,
        share::Shared,
    },
    Holders, Watched,
};
use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

/// Number of times an attachment looks for processes that share the memory before it is refused, and how long it waits in
/// between: a child of vfork executes another program soon.
const SHARER_LOOKUPS: u32 = 50;
const SHARER_INTERVAL: Duration = Duration::from_millis(1);

impl Runtime {
    /// Maps the counter of processes that share the memory, where there is one.
    pub(in super::super) fn share_counter(&mut self) -> Result<()> {
        let tracer = Arc::clone(&self.tracer);
        if let Some(watched) = tracer.watched() {
            let counters = Shared {
                file: watched.file(),
                bytes: Watched::BYTES,
                is_read_only: true,
                again_from: None,
                at: None,
            };
            let at = self.share(&[counters])?[0];
            self.proof.counter = Some(at + watched.offset());
        }
        Ok(())
    }

    /// Waits until no other process shares the memory: a child of vfork executes another program soon. One that stays is
    /// an error.
    pub(in super::super) fn wait_for_sharers(&self) -> Result<()> {
        for _ in 1..SHARER_LOOKUPS {
            if self.sharer().is_none() {
                return Ok(());
            }
            thread::sleep(SHARER_INTERVAL);
        }
        self.sharer().map_or(Ok(()), Err)
    }

    /// Returns an error that names a process which shares the memory.
    pub(in super::super) fn sharer(&self) -> Option<Error> {
        // After the first look, the kernel counts those that come.
        let watched = self
            .tracer
            .watched()
            .filter(|_| self.is_alone.load(Ordering::Relaxed));
        if watched.is_some_and(|watched| watched.count() == 0) {
            return None;
        }
        let mark = match self.areas.mark(&self.memory) {
            Ok(mark) => mark,
            Err(error) => return Some(error),
        };
        let sharer = mark.sharers(self.pid).into_iter().next();
        self.is_alone.store(sharer.is_none(), Ordering::Relaxed);
        sharer.map(|sharer| Error::MemoryShared {
            pid: self.pid,
            other: sharer.pid,
            name: sharer.name,
        })
    }

    /// Returns the offset from a thread's FS base of the word in which the process keeps the thread's number, if there is
    /// one.
    pub(crate) fn thread_word(&self) -> Option<i64> {
        self.thread_word
    }

    /// Returns the address of the control page of the first area, and the number of areas.
    pub(crate) fn control_pages(&self) -> (u64, u64) {
        (self.areas.layout.control(0), self.areas.layout.areas)
    }

    /// Returns the holders of locks of the process and its forked children that run now.
    pub(crate) fn holders(&self) -> Holders {
        let children = self.areas.children.iter();
        let pids = children.flat_map(|children| descendants(children.inode, self.pid));
        let at = self.areas.layout.base + STATE_HOLDERS as u64;
        let first = |pid| {
            let mut number = [0; 4];
            Memory::open(pid).ok()?.read(at, &mut number).ok()?;
            Some(u32::from_le_bytes(number)).filter(|&first| first >= FIRST_CHILD_HOLDER)
        };
        Holders {
            is_running: self.is_there(),
            children: pids.filter_map(first).collect(),
        }
    }
}
