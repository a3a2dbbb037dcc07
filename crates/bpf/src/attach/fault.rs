//! Page faults: pages of an anonymous mapping are read, each for the first time, and perf counts them.
//!
//! In the number: the exception, the search for the mapping, and the entry of the kernel's page of
//! zeros; no page is allocated. Not in it: page tables, which are made once and stay, and the release of
//! the pages after each batch.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::OwnedFd,
    ptr,
    rc::{Rc, Weak},
    slice,
};

use libbpf_rs::{Link, ProgramMut, libbpf_sys as sys};
use rustix::{
    io::Errno,
    ioctl::{NoArg, ioctl, opcode},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap},
    param::page_size,
};

use super::{
    Attach, Attachment, BatchRequest, BatchResult, Driver, Events, driver::MAX_FAULTS,
    kernel::perf, stopwatch,
};
use crate::{
    error::{Result, failed},
    feature::kernel,
    routine,
};

/// Pages of the mapping, as many as the largest batch has.
const PAGES: usize = MAX_FAULTS as usize;

/// Preferred address of the mapping: below all else. The kernel walks the process's mappings in the order of
/// their addresses, and so finds this one first, however many there are (by 43 instructions did a fault differ
/// between two builds of one program).
const LOW: usize = 0x1000_0000;

/// Pages released at a time. Since Linux 6.14 a page table goes too when all of its pages are released
/// at once, and making it again would be in the number; so only a half of each (it has 512 entries).
const RELEASED: usize = 256;

/// Faults before the first batch, so that all else that the loop needs is in memory.
const FIRST_FAULTS: usize = 16;

/// A driver that reads pages.
pub(super) struct Faults {
    memory: Memory,
    /// The event of what is attached, while it is.
    event: Weak<OwnedFd>,
}

impl Faults {
    pub(super) fn map() -> Result<Self> {
        let memory = Memory::map(PAGES)
            .map_err(failed("page-fault", "mapping memory whose pages are read"))?;
        memory.make_tables();
        memory.read(FIRST_FAULTS);
        memory
            .release(PAGES)
            .map_err(failed("page-fault", "releasing the pages"))?;
        Ok(Faults {
            memory,
            event: Weak::new(),
        })
    }
}

impl Events for Faults {
    /// Events of the calling thread are counted, so batches must be made by it too.
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        Driver::PageFault.owns(attach)?;
        let event = open_event().map_err(failed(attach.name(), "opening the event"))?;
        let ours = event
            .try_clone()
            .map_err(failed(attach.name(), "keeping the event"))?;
        let link = perf(program, event).map_err(failed(attach.name(), "attaching it"))?;
        // Attaching has switched it on; faults count in batches alone.
        switch(&ours, false).map_err(failed(attach.name(), "switching it off"))?;
        let ours = Rc::new(ours);
        self.event = Rc::downgrade(&ours);
        Ok(Box::new(FaultAttachment {
            _link: link,
            _event: ours,
        }))
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        let pages = usize::try_from(ask.events).map_or(PAGES, |events| events.min(PAGES));
        let ask = BatchRequest {
            events: pages as u64,
            ..*ask
        };
        let event = self.event.upgrade();
        let turn = |on| match &event {
            Some(event) => switch(event, on).map_err(failed("perf_event", "switching it")),
            None => Ok(()),
        };
        turn(true)?;
        // What is kept of slices could have page faults of its own.
        let driven = stopwatch::time_whole(&ask, |_| {
            self.memory.read(pages);
            Ok(())
        });
        turn(false)?;
        self.memory
            .release(pages)
            .map_err(failed("page-fault", "releasing the pages"))?;
        driven
    }
}

/// A program on the event, which goes with both.
struct FaultAttachment {
    _link: Link,
    _event: Rc<OwnedFd>,
}

impl Attachment for FaultAttachment {}

/// Addresses that can be read, and have no memory of their own.
struct Memory {
    start: ptr::NonNull<u8>,
    pages: usize,
}

impl Memory {
    fn map(pages: usize) -> rustix::io::Result<Self> {
        let bytes = pages * page_size();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let wish = ptr::without_provenance_mut(LOW);
        // SAFETY: a new mapping, at an address that is free; it is unmapped in `drop` alone.
        let start = unsafe { mmap_anonymous(wish, bytes, ProtFlags::READ, flags)? };
        let start = ptr::NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let memory = Memory { start, pages };
        // One huge page would be one fault. Kernels without them refuse the advice.
        // SAFETY: advice on a mapping of our own, which changes nothing that is read from it.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        Ok(memory)
    }

    /// All of it: zeros.
    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this lives, readable, and never written to.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.pages * page_size()) }
    }

    /// Reads the first pages.
    fn read(&self, pages: usize) {
        let size = page_size();
        routine::read_pages(&self.bytes()[..pages * size], size);
    }

    /// Has the kernel make every page table, by a page in each.
    fn make_tables(&self) {
        let stride = RELEASED * page_size();
        routine::read_pages(self.bytes(), stride);
    }

    /// Has the first pages be as if they had never been read.
    fn release(&self, pages: usize) -> rustix::io::Result<()> {
        let size = page_size();
        for first in (0..pages).step_by(RELEASED) {
            let count = RELEASED.min(self.pages - first);
            // SAFETY: a part of the mapping; it is zeros before and after.
            unsafe {
                let start = self.start.as_ptr().add(first * size);
                madvise(start.cast(), count * size, Advice::LinuxDontNeed)?;
            }
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.pages * page_size()) };
    }
}

/// Opens the event of every page fault of the calling thread, switched off.
fn open_event() -> io::Result<OwnedFd> {
    let mut event = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_PAGE_FAULTS.into(),
        ..Default::default()
    };
    event.__bindgen_anon_1.sample_period = 1;
    event.set_disabled(1);
    let (this_thread, any_cpu) = (0, -1);
    kernel::open_event(event, this_thread, any_cpu)
}

/// Switches an event on or off.
fn switch(event: &OwnedFd, on: bool) -> rustix::io::Result<()> {
    // PERF_EVENT_IOC_ENABLE and PERF_EVENT_IOC_DISABLE.
    const ON: rustix::ioctl::Opcode = opcode::none(b'$', 0);
    const OFF: rustix::ioctl::Opcode = opcode::none(b'$', 1);
    // SAFETY: both take no argument here (a group's flag would be one, and 0 is none).
    unsafe {
        if on {
            ioctl(event, NoArg::<ON>::new())
        } else {
            ioctl(event, NoArg::<OFF>::new())
        }
    }
}
