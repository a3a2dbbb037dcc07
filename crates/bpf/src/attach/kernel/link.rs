//! Links for which libbpf-rs has no call: kprobes inside a function, fprobes by address or with a session, and
//! trampolines for many functions, which this libbpf doesn't know.

#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd},
    ptr::{self, NonNull},
};

use libbpf_rs::{
    AsRawLibbpf as _, Link, PerfEventOpts, ProgramMut,
    libbpf_sys::{self as sys},
    query::{LinkInfo, LinkTypeInfo, PerfEventType},
};

use crate::{
    error::{Result, failed},
    feature::kernel,
};

/// Attaches a kprobe that many bytes behind the start of a function.
pub(crate) fn inside(
    program: &ProgramMut<'_>,
    function: &str,
    offset: usize,
) -> libbpf_rs::Result<Link> {
    let options = sys::bpf_kprobe_opts {
        sz: size_of::<sys::bpf_kprobe_opts>() as _,
        offset: offset as _,
        ..Default::default()
    };
    let function =
        CString::new(function).map_err(|_| libbpf_rs::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the program is loaded; name and options outlive the call.
    taken(unsafe {
        sys::bpf_program__attach_kprobe_opts(
            program.as_libbpf_object().as_ptr(),
            function.as_ptr(),
            &options,
        )
    })
}

/// The functions that an fprobe attaches to.
pub(in crate::attach) enum FprobeTargets<'a> {
    Names(&'a [CString]),
    Addresses(&'a [u64]),
}

/// Attaches an fprobe to entries.
pub(in crate::attach) fn fprobe(
    program: &ProgramMut<'_>,
    places: &FprobeTargets<'_>,
) -> libbpf_rs::Result<Link> {
    fprobe_at(program, places, false, false)
}

/// Attaches an fprobe to functions by their names: to their entries or returns, or with `session` to both.
pub(crate) fn multi(
    program: &ProgramMut<'_>,
    functions: &[String],
    at_return: bool,
    session: bool,
) -> libbpf_rs::Result<Link> {
    let name = |function: &String| CString::new(function.as_str());
    let names: std::result::Result<Vec<CString>, _> = functions.iter().map(name).collect();
    let names = names.map_err(|_| libbpf_rs::Error::from_raw_os_error(libc::EINVAL))?;
    fprobe_at(program, &FprobeTargets::Names(&names), at_return, session)
}

fn fprobe_at(
    program: &ProgramMut<'_>,
    places: &FprobeTargets<'_>,
    retprobe: bool,
    session: bool,
) -> libbpf_rs::Result<Link> {
    let mut names: Vec<_> = match places {
        FprobeTargets::Names(names) => names.iter().map(|name| name.as_ptr()).collect(),
        FprobeTargets::Addresses(_) => Vec::new(),
    };
    let mut options = sys::bpf_kprobe_multi_opts {
        sz: size_of::<sys::bpf_kprobe_multi_opts>() as _,
        retprobe,
        session,
        ..Default::default()
    };
    match places {
        FprobeTargets::Names(_) => {
            options.syms = names.as_mut_ptr();
            options.cnt = names.len() as _;
        }
        FprobeTargets::Addresses(addresses) => {
            options.addrs = addresses.as_ptr();
            options.cnt = addresses.len() as _;
        }
    }
    // SAFETY: the program is loaded; the options and the lists in them outlive the call, and are as long
    // as is said.
    taken(unsafe {
        sys::bpf_program__attach_kprobe_multi_opts(
            program.as_libbpf_object().as_ptr(),
            ptr::null(),
            &options,
        )
    })
}

/// Attaches a program to the perf event, which the link keeps.
pub(crate) fn perf(program: &ProgramMut<'_>, event: OwnedFd) -> libbpf_rs::Result<Link> {
    perf_with(program, event, PerfEventOpts::default())
}

/// The same, with options.
pub(in crate::attach) fn perf_with(
    program: &ProgramMut<'_>,
    event: OwnedFd,
    options: PerfEventOpts,
) -> libbpf_rs::Result<Link> {
    let link = program.attach_perf_event_with_opts(event.as_raw_fd(), options)?;
    // libbpf closes it with the link.
    let _ = event.into_raw_fd();
    Ok(link)
}

/// The part of bpf(2)'s attributes that makes a link for trampolines of many functions (Linux 7.2).
#[repr(C)]
#[derive(Default)]
struct TracingMulti {
    program: u32,
    target: u32,
    attach: u32,
    flags: u32,
    /// Numbers of functions in the kernel's BTF.
    ids: u64,
    cookies: u64,
    count: u32,
    padding: u32,
}

/// Attaches trampolines to functions, by their numbers in the kernel's BTF.
pub(in crate::attach) fn trampolines(
    program: &ProgramMut<'_>,
    attach: sys::bpf_attach_type,
    functions: &[u32],
) -> libbpf_rs::Result<OwnedFd> {
    let attributes = TracingMulti {
        program: program.as_fd().as_raw_fd() as u32,
        attach,
        ids: functions.as_ptr().expose_provenance() as u64,
        count: functions.len() as u32,
        ..Default::default()
    };
    // SAFETY: the attributes and the list that they name outlive the call, and are as long as is said.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            sys::BPF_LINK_CREATE,
            &attributes,
            size_of::<TracingMulti>(),
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: not negative, it is a descriptor that the kernel has just opened for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(answer as i32) })
}

/// Opens the event of a tracepoint, not started. Programs attached to it run on every CPU, for everyone.
pub(in crate::attach) fn tracepoint_event(number: u64) -> io::Result<OwnedFd> {
    let event = sys::perf_event_attr {
        type_: sys::PERF_TYPE_TRACEPOINT,
        config: number,
        ..Default::default()
    };
    let (everyone, first_cpu) = (-1, 0);
    kernel::open_event(event, everyone, first_cpu)
}

/// Reads the events that a link missed, as the kernel reports them; 0 where it doesn't (before Linux 6.7,
/// and for mechanisms that can't miss).
pub(in crate::attach) fn missed(link: &Link) -> Result<u64> {
    let info =
        LinkInfo::from_fd(link.as_fd()).map_err(failed("a link", "reading what it missed"))?;
    Ok(match info.info {
        LinkTypeInfo::KprobeMulti(multi) => multi.missed,
        LinkTypeInfo::PerfEvent(event) => match event.event_type {
            PerfEventType::Kprobe { missed, .. } => missed,
            _ => 0,
        },
        _ => 0,
    })
}

/// libbpf answers with nothing, and leaves the reason in errno.
fn taken(link: *mut sys::bpf_link) -> libbpf_rs::Result<Link> {
    match NonNull::new(link) {
        // SAFETY: libbpf made it for this call alone, and nothing else refers to it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(io::Error::last_os_error().into()),
    }
}
