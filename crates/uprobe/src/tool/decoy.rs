//! Events that a tool holds for uprobes, without a uprobe in the kernel: they are of a file that no process executes.

#![allow(unsafe_code, reason = "asks the kernel")]

use std::{
    fs, io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use libbpf_rs::libbpf_sys as sys;
use rustix::fs::MemfdFlags;

use super::{
    call::{CreateLinks, OpenEvent},
    start::adopt,
};

/// Types of events, and the bit of uprobes at returns.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";
const RETURNS: &str = "/sys/bus/event_source/devices/uprobe/format/retprobe";
/// Bit of the offset of a semaphore, in the event's configuration.
const SEMAPHORE_SHIFT: u32 = 32;

/// Distance of the decoys' offsets, and bytes of their file.
const STEP: u64 = 16;
const FILE_BYTES: u64 = 1 << 30;

/// `PERF_EVENT_IOC_ID`, `PERF_EVENT_IOC_SET_BPF`.
const GET_ID: u64 = 0x8008_2407;
const SET_BPF: u64 = 0x4004_2408;

/// The file, and how the kernel has uprobes.
#[derive(Debug)]
pub(super) struct Decoys {
    file: OwnedFd,
    next: u64,
    kind: u32,
    returns: u64,
}

/// The place that an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventPlace {
    pub(super) offset: u64,
    pub(super) is_return: bool,
    /// The offset in the file of a semaphore, 0 without one.
    pub(super) semaphore: u64,
}

impl Decoys {
    pub(super) fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("decoy", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, FILE_BYTES)?;
        let kind = fs::read_to_string(TYPE)?.trim().parse();
        let returns = fs::read_to_string(RETURNS)?;
        let bit = returns
            .trim()
            .strip_prefix("config:")
            .and_then(|bit| bit.parse::<u32>().ok());
        let unknown = || io::Error::other("the kernel describes uprobes in another way");
        Ok(Decoys {
            file,
            next: 0,
            kind: kind.map_err(|_| unknown())?,
            returns: 1
                << bit
                    .filter(|bit| *bit < SEMAPHORE_SHIFT)
                    .ok_or_else(unknown)?,
        })
    }

    /// The place that a call opens an event for; `None` if it is of no uprobe.
    pub(super) fn place(&self, call: &OpenEvent) -> Option<EventPlace> {
        let config = call.attributes.config;
        (call.attributes.type_ == self.kind).then(|| EventPlace {
            offset: call.offset(),
            is_return: config & self.returns != 0,
            semaphore: config >> SEMAPHORE_SHIFT,
        })
    }

    /// The same event, where nothing hits it. Its number tells it from all others.
    pub(super) fn open(&mut self, call: &OpenEvent) -> io::Result<(OwnedFd, u64)> {
        let path = format!("/proc/self/fd/{}\0", self.file.as_raw_fd());
        let mut attributes = *call.attributes;
        attributes.size = size_of_val(&attributes) as u32;
        attributes.config &= (1 << SEMAPHORE_SHIFT) - 1;
        attributes.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
        attributes.__bindgen_anon_4.probe_offset = self.take_offset();
        // SAFETY: the kernel reads the attributes, and the path that they lead to, while both live.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                call.pid,
                call.cpu,
                -1,
                call.flags,
            )
        };
        if opened < 0 {
            return Err(io::Error::last_os_error());
        }
        let event = adopt(opened as RawFd);
        let id = id(&event).ok_or_else(io::Error::last_os_error)?;
        Ok((event, id))
    }
}

impl Decoys {
    /// A link to several places, where nothing hits them. Returns the link, and the kernel's number of it.
    pub(super) fn link(
        &mut self,
        call: &CreateLinks,
        program: BorrowedFd<'_>,
    ) -> io::Result<(OwnedFd, u32)> {
        let path = format!("/proc/self/fd/{}\0", self.file.as_raw_fd());
        let offsets: Vec<u64> = call.spots.iter().map(|_| self.take_offset()).collect();
        let cookies: Vec<u64> = call.spots.iter().map(|spot| spot.cookie).collect();
        let mut options = sys::bpf_link_create_opts {
            sz: size_of::<sys::bpf_link_create_opts>() as u64,
            ..Default::default()
        };
        options.__bindgen_anon_1.uprobe_multi =
            sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
                flags: call.flags,
                cnt: call.spots.len() as u32,
                path: path.as_ptr().cast(),
                offsets: offsets.as_ptr(),
                cookies: cookies.as_ptr(),
                pid: call.pid,
                ..Default::default()
            };
        // SAFETY: the kernel reads the options and what they lead to, all of which lives as long as the call.
        let link = unsafe {
            sys::bpf_link_create(
                program.as_raw_fd(),
                0,
                sys::BPF_TRACE_UPROBE_MULTI,
                &raw const options,
            )
        };
        numbered(link)
    }

    /// An offset of the file that no other event has.
    fn take_offset(&mut self) -> u64 {
        let offset = self.next;
        self.next = (offset + STEP) % FILE_BYTES;
        offset
    }
}

/// The number of an event; `None` if the file is of none.
pub(super) fn id(event: &OwnedFd) -> Option<u64> {
    let mut id = 0_u64;
    // SAFETY: the kernel writes 8 bytes.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), GET_ID, &raw mut id) };
    (answer == 0).then_some(id)
}

/// Has an event run a program.
pub(super) fn set_program(event: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the kernel takes the number of a file.
    match unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Links a program to an event. Returns the link, and the kernel's number of it.
pub(super) fn link(
    event: &OwnedFd,
    program: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<(OwnedFd, u32)> {
    let mut options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as u64,
        ..Default::default()
    };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: files that are open, and options that live as long as the call.
    let link = unsafe {
        sys::bpf_link_create(
            program.as_raw_fd(),
            event.as_raw_fd(),
            sys::BPF_PERF_EVENT,
            &raw const options,
        )
    };
    numbered(link)
}

/// A new link, or the error of its call, with the kernel's number of it.
fn numbered(link: RawFd) -> io::Result<(OwnedFd, u32)> {
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    let link = adopt(link);
    let mut info = sys::bpf_link_info::default();
    let mut bytes = size_of_val(&info) as u32;
    let into = (&raw mut info).cast();
    // SAFETY: the kernel writes at most so many bytes of what it knows of the link.
    match unsafe { sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), into, &raw mut bytes) } {
        0 => Ok((link, info.id)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns whether there is a link of this number.
pub(super) fn is_there(link: u32) -> bool {
    // SAFETY: the kernel takes a number.
    let fd = unsafe { sys::bpf_link_get_fd_by_id(link) };
    if fd < 0 {
        return io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT);
    }
    drop(adopt(fd));
    true
}
