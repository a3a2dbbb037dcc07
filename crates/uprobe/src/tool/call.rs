//! The calls that a tool makes, typed: copies of what its memory had, which it can't change any more.

#![allow(unsafe_code, reason = "the fields of unions")]

use std::{io, os::fd::RawFd, path::PathBuf};

use libbpf_rs::libbpf_sys::{self as sys, bpf_attr, perf_event_attr};

use super::{caller::Caller, filter::SET_BPF, notify::Notification};

/// The most instructions that the kernel takes of a program.
const MAX_INSTRUCTIONS: u32 = 1_000_000;
/// The most places of a link (`MAX_UPROBE_MULTI_CNT`).
const MAX_SPOTS: usize = 1 << 20;
const INSTRUCTION_BYTES: usize = 8;
/// Flags of `mount` for what is mounted already.
const OF_MOUNTED: u64 = libc::MS_REMOUNT
    | libc::MS_BIND
    | libc::MS_MOVE
    | libc::MS_SHARED
    | libc::MS_PRIVATE
    | libc::MS_SLAVE
    | libc::MS_UNBINDABLE;
/// Place of the number of elements among the arguments of a command for many.
const COUNT_AT: u64 = std::mem::offset_of!(sys::bpf_attr__bindgen_ty_3, count) as u64;
/// Types of events, in `struct perf_event_attr`: the size of its first version.
const FIRST_SIZE: usize = 64;

/// A call of a tool.
pub(super) enum Call {
    OpenEvent(OpenEvent),
    /// A program for an event, by an `ioctl`.
    SetProgram {
        event: RawFd,
        program: RawFd,
    },
    CreateMap(Box<sys::bpf_attr>),
    Element(Element),
    Batch(Batch),
    LoadProgram(LoadProgram),
    CreateLink(CreateLink),
    /// A link of a program to several places of a file.
    CreateLinks(CreateLinks),
    /// A program for something else than an event.
    Attach {
        program: RawFd,
    },
    /// A program that is run once.
    Run {
        program: RawFd,
    },
    /// A file system of a kind that is made to be mounted.
    Mount {
        kind: Vec<u8>,
    },
    /// Something that changes nothing here.
    Other,
}

/// `perf_event_open`.
pub(super) struct OpenEvent {
    pub(super) attributes: Box<perf_event_attr>,
    pub(super) pid: i32,
    pub(super) cpu: i32,
    pub(super) flags: u64,
}

/// A command for one element of a map; addresses are the caller's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) command: u32,
    pub(super) map: RawFd,
    pub(super) key: u64,
    /// The address of the value, or of the next key.
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// A command for many elements of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) command: u32,
    pub(super) map: RawFd,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    /// The address of the count, which is written too.
    pub(super) count_at: u64,
    pub(super) flags: u64,
}

/// A program, as it was given to the kernel.
#[derive(Debug)]
pub(super) struct LoadProgram {
    pub(super) instructions: Vec<u8>,
    /// True if the kernel changes the instructions before it looks at them.
    pub(super) is_relocated: bool,
}

/// A link of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct CreateLink {
    pub(super) program: RawFd,
    pub(super) target: RawFd,
    pub(super) kind: u32,
    pub(super) cookie: u64,
}

/// A link of a program to several places of a file.
#[derive(Clone, Debug)]
pub(super) struct CreateLinks {
    pub(super) program: RawFd,
    pub(super) path: PathBuf,
    pub(super) flags: u32,
    /// True if the program runs at entries and at returns.
    pub(super) is_session: bool,
    /// The process, 0 for all.
    pub(super) pid: u32,
    pub(super) spots: Vec<LinkSpot>,
}

/// One of the places.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSpot {
    pub(super) offset: u64,
    /// The offset of a semaphore, 0 without one.
    pub(super) semaphore: u64,
    pub(super) cookie: u64,
}

impl Call {
    /// The call that a thread of the caller waits in.
    pub(super) fn read(notification: &Notification, caller: &Caller) -> io::Result<Self> {
        let arguments = notification.arguments;
        let number = |index: usize| arguments[index] as RawFd;
        match notification.call {
            libc::SYS_perf_event_open => Ok(Call::OpenEvent(OpenEvent {
                attributes: read_event(caller, arguments[0])?,
                pid: number(1),
                cpu: number(2),
                flags: arguments[4],
            })),
            libc::SYS_ioctl if arguments[1] as u32 == SET_BPF => Ok(Call::SetProgram {
                event: number(0),
                program: number(2),
            }),
            libc::SYS_mount if arguments[3] & OF_MOUNTED == 0 => Ok(Call::Mount {
                kind: caller.text(arguments[2])?,
            }),
            libc::SYS_fsopen => Ok(Call::Mount {
                kind: caller.text(arguments[0])?,
            }),
            libc::SYS_bpf => bpf(
                caller,
                arguments[0] as u32,
                arguments[1],
                arguments[2] as u32 as usize,
            ),
            _ => Ok(Call::Other),
        }
    }
}

impl OpenEvent {
    /// The path of a uprobe's file.
    pub(super) fn path(&self, caller: &Caller) -> io::Result<PathBuf> {
        // SAFETY: a number, whatever the others have it as.
        caller.path(unsafe { self.attributes.__bindgen_anon_3.uprobe_path })
    }

    /// The offset of a uprobe in its file.
    pub(super) fn offset(&self) -> u64 {
        // SAFETY: a number, whatever the others have it as.
        unsafe { self.attributes.__bindgen_anon_4.probe_offset }
    }
}

fn read_event(caller: &Caller, address: u64) -> io::Result<Box<perf_event_attr>> {
    let mut attributes = Box::<perf_event_attr>::default();
    let head = caller.read(address, FIRST_SIZE)?;
    let bytes = u32::from_ne_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
    let most = size_of::<perf_event_attr>();
    let bytes = if bytes == 0 {
        FIRST_SIZE
    } else {
        bytes.min(most)
    };
    fill(&mut *attributes, &caller.read(address, bytes)?);
    Ok(attributes)
}

/// Fills the beginning of a structure of numbers.
fn fill<T: Copy>(into: &mut T, bytes: &[u8]) {
    assert!(bytes.len() <= size_of::<T>());
    // SAFETY: as many bytes are the structure's, for which any are a value: this file's callers have those of the kernel's
    // interface, which are numbers alone.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::from_mut(into).cast(), bytes.len());
    }
}

/// Places of a link to several. What the kernel would refuse is left to it.
fn links(
    caller: &Caller,
    program: RawFd,
    is_session: bool,
    multi: &sys::bpf_attr__bindgen_ty_14__bindgen_ty_3__bindgen_ty_7,
) -> io::Result<Call> {
    let count = multi.cnt as usize;
    if count == 0 || count > MAX_SPOTS || multi.offsets == 0 || multi.path == 0 {
        return Ok(Call::Other);
    }
    let numbers = |address: u64| -> io::Result<Vec<u64>> {
        if address == 0 {
            return Ok(vec![0; count]);
        }
        let bytes = caller.read(address, 8 * count)?;
        let words = bytes.chunks_exact(8);
        Ok(words
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
            .collect())
    };
    let (semaphores, cookies) = (numbers(multi.ref_ctr_offsets)?, numbers(multi.cookies)?);
    let spots = numbers(multi.offsets)?
        .into_iter()
        .zip(semaphores)
        .zip(cookies);
    let spots = spots.map(|((offset, semaphore), cookie)| LinkSpot {
        offset,
        semaphore,
        cookie,
    });
    Ok(Call::CreateLinks(CreateLinks {
        program,
        path: caller.path(multi.path)?,
        flags: multi.flags,
        is_session,
        pid: multi.pid,
        spots: spots.collect(),
    }))
}

fn bpf(caller: &Caller, command: u32, address: u64, bytes: usize) -> io::Result<Call> {
    let mut attributes = Box::<bpf_attr>::default();
    let bytes = bytes.min(size_of::<bpf_attr>());
    fill(&mut *attributes, &caller.read(address, bytes)?);
    // SAFETY: each command has its own structure, which is of numbers alone, and zero where the caller gave none.
    unsafe {
        Ok(match command {
            sys::BPF_MAP_CREATE => Call::CreateMap(attributes),
            sys::BPF_MAP_LOOKUP_ELEM
            | sys::BPF_MAP_UPDATE_ELEM
            | sys::BPF_MAP_DELETE_ELEM
            | sys::BPF_MAP_GET_NEXT_KEY
            | sys::BPF_MAP_LOOKUP_AND_DELETE_ELEM => {
                let element = attributes.__bindgen_anon_2;
                Call::Element(Element {
                    command,
                    map: element.map_fd.cast_signed(),
                    key: element.key,
                    value: element.__bindgen_anon_1.value,
                    flags: element.flags,
                })
            }
            sys::BPF_MAP_LOOKUP_BATCH
            | sys::BPF_MAP_LOOKUP_AND_DELETE_BATCH
            | sys::BPF_MAP_UPDATE_BATCH
            | sys::BPF_MAP_DELETE_BATCH => {
                let batch = attributes.batch;
                Call::Batch(Batch {
                    command,
                    map: batch.map_fd.cast_signed(),
                    from: batch.in_batch,
                    to: batch.out_batch,
                    keys: batch.keys,
                    values: batch.values,
                    count: batch.count,
                    count_at: address.wrapping_add(COUNT_AT),
                    flags: batch.elem_flags | batch.flags,
                })
            }
            sys::BPF_PROG_LOAD => {
                let program = attributes.__bindgen_anon_3;
                if program.insn_cnt > MAX_INSTRUCTIONS {
                    return Ok(Call::Other);
                }
                let bytes = program.insn_cnt as usize * INSTRUCTION_BYTES;
                Call::LoadProgram(LoadProgram {
                    instructions: caller.read(program.insns, bytes)?,
                    is_relocated: program.core_relo_cnt != 0,
                })
            }
            sys::BPF_LINK_CREATE => {
                let link = attributes.link_create;
                let is_session = link.attach_type == sys::BPF_TRACE_UPROBE_SESSION;
                if is_session || link.attach_type == sys::BPF_TRACE_UPROBE_MULTI {
                    let program = link.__bindgen_anon_1.prog_fd.cast_signed();
                    let places = &link.__bindgen_anon_3.uprobe_multi;
                    return links(caller, program, is_session, places);
                }
                Call::CreateLink(CreateLink {
                    program: link.__bindgen_anon_1.prog_fd.cast_signed(),
                    target: link.__bindgen_anon_2.target_fd.cast_signed(),
                    kind: link.attach_type,
                    cookie: link.__bindgen_anon_3.perf_event.bpf_cookie,
                })
            }
            sys::BPF_PROG_TEST_RUN => Call::Run {
                program: attributes.test.prog_fd.cast_signed(),
            },
            sys::BPF_LINK_UPDATE => Call::Attach {
                program: attributes
                    .link_update
                    .__bindgen_anon_1
                    .new_prog_fd
                    .cast_signed(),
            },
            sys::BPF_RAW_TRACEPOINT_OPEN => Call::Attach {
                program: attributes.raw_tracepoint.prog_fd.cast_signed(),
            },
            sys::BPF_PROG_ATTACH => Call::Attach {
                program: attributes.__bindgen_anon_5.attach_bpf_fd.cast_signed(),
            },
            _ => Call::Other,
        })
    }
}
