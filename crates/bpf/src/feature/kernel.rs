//! The system calls that ask the kernel for features, one per question. Whatever they create is closed at once.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char},
    fmt, io,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use libbpf_rs::libbpf_sys::{self as sys, __BindgenBitfieldUnit, bpf_insn};

/// An address that no process has: the kernel that knows what it would find there says EFAULT, after it
/// looked at everything else, and before it does anything.
const NOWHERE: usize = 1;

/// Room for what the verifier says of programs of a few instructions.
const LOG_BYTES: usize = 4096;

/// The kernel's answer instead of yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelRefusal {
    /// The error's number.
    pub(crate) errno: i32,
    /// The verifier's words, where it was asked.
    pub(super) log: String,
}

impl KernelRefusal {
    pub(super) fn from_errno(errno: i32) -> Self {
        KernelRefusal {
            errno,
            log: String::new(),
        }
    }
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As the C library has no word for it.
        match self.errno {
            ENOTSUPP => f.write_str("Operation not supported by the kernel (os error 524)"),
            errno => io::Error::from_raw_os_error(errno).fmt(f),
        }
    }
}

/// The kernel's own "not supported", which no header of user space has.
pub(super) const ENOTSUPP: i32 = 524;

/// A program to load.
#[derive(Clone, Copy, Default)]
pub(crate) struct ProgramSpec<'a> {
    /// At most 15 characters.
    pub(super) name: Option<&'a CStr>,
    pub(super) kind: sys::bpf_prog_type,
    pub(super) attach: sys::bpf_attach_type,
    /// Number, in the kernel's BTF, of the type that it attaches to.
    pub(super) target: u32,
    pub(super) flags: u32,
    pub(super) instructions: &'a [bpf_insn],
}

/// Sets register 0.
pub(super) const MOVE: u8 = 0xb7;
/// Calls a helper.
pub(super) const CALL: u8 = 0x85;
/// Jumps.
pub(super) const GOTO: u8 = 0x05;
/// Jumps once a budget is used up (BPF_JCOND).
pub(super) const MAY_GOTO: u8 = 0xe5;
/// Returns register 0.
pub(super) const EXIT: u8 = 0x95;

/// An instruction on register 0.
pub(super) const fn instruction(code: u8, jump: i16, value: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: __BindgenBitfieldUnit::new([0]),
        off: jump,
        imm: value,
    }
}

pub(crate) fn returns_0(kind: sys::bpf_prog_type) -> ProgramSpec<'static> {
    const RETURNS_0: &[bpf_insn] = &[instruction(MOVE, 0, 0), instruction(EXIT, 0, 0)];
    ProgramSpec {
        kind,
        instructions: RETURNS_0,
        ..ProgramSpec::default()
    }
}

impl<'a> ProgramSpec<'a> {
    /// The same with a name, of at most 15 characters.
    pub(crate) fn named(self, name: &'a CStr) -> Self {
        ProgramSpec {
            name: Some(name),
            ..self
        }
    }
}

pub(crate) fn load(program: ProgramSpec<'_>) -> Result<OwnedFd, KernelRefusal> {
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        // One: EAGAIN is no answer, and is returned.
        attempts: 1,
        expected_attach_type: program.attach,
        attach_btf_id: program.target,
        prog_flags: program.flags,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: name, licence, instructions and log outlive the call, and their sizes are those named.
    let answer = unsafe {
        sys::bpf_prog_load(
            program.kind,
            program.name.map_or(ptr::null(), CStr::as_ptr),
            c"Dual BSD/GPL".as_ptr(),
            program.instructions.as_ptr(),
            program.instructions.len() as _,
            &mut options,
        )
    };
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
    owned(answer).map_err(|no| KernelRefusal {
        log: String::from_utf8_lossy(&log[..end]).into_owned(),
        ..no
    })
}

pub(super) fn map(
    kind: sys::bpf_map_type,
    [key, value, entries]: [u32; 3],
    flags: u32,
) -> Result<OwnedFd, KernelRefusal> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as _,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call; a map may be without a name.
    owned(unsafe { sys::bpf_map_create(kind, ptr::null(), key, value, entries, &options) })
}

/// Reads the one entry of a per-CPU array of 8 bytes for each of `cpus`.
pub(super) fn read_batch(map: &OwnedFd, cpus: usize) -> Result<(), KernelRefusal> {
    let mut values = vec![0u64; cpus];
    let (mut key, mut position, mut count) = (0u32, 0u32, 1u32);
    // SAFETY: there is room for one key, and for one value of each possible CPU.
    let answer = unsafe {
        sys::bpf_map_lookup_batch(
            map.as_raw_fd(),
            ptr::null_mut(),
            ptr::from_mut(&mut position).cast(),
            ptr::from_mut(&mut key).cast(),
            values.as_mut_ptr().cast(),
            &mut count,
            ptr::null(),
        )
    };
    done(answer)
}

/// Runs a program on 64 bytes.
pub(super) fn test_run(program: &OwnedFd) -> Result<(), KernelRefusal> {
    run(program, &[0; 64], 1, 0, 0)
}

/// Asks for a run that passes frames on, in larger batches than there are: nothing runs.
pub(super) fn run_frames(program: &OwnedFd) -> Result<(), KernelRefusal> {
    const TOO_MANY: u32 = 1 << 16;
    let flags = sys::BPF_F_TEST_XDP_LIVE_FRAMES;
    run(program, &[0; 64], 1, flags, TOO_MANY)
}

/// Runs a program on a packet, so many times.
pub(crate) fn run(
    program: impl AsFd,
    packet: &[u8],
    times: u32,
    flags: u32,
    batch_size: u32,
) -> Result<(), KernelRefusal> {
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        repeat: times as _,
        flags,
        batch_size,
        ..Default::default()
    };
    // SAFETY: the packet outlives the call and is as long as is named.
    done(unsafe { sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) })
}

/// Links a program to a network interface.
pub(crate) fn link_interface(
    program: impl AsFd,
    interface: i32,
    attach: sys::bpf_attach_type,
    flags: u32,
) -> Result<OwnedFd, KernelRefusal> {
    let options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call.
    owned(unsafe { sys::bpf_link_create(program.as_fd().as_raw_fd(), interface, attach, &options) })
}

/// Asks for kprobes at addresses, or uprobes in a file, that stand [`NOWHERE`]: nothing is attached, whatever the
/// answer.
pub(super) fn link_nowhere(
    program: &OwnedFd,
    attach: sys::bpf_attach_type,
    user: bool,
) -> Result<OwnedFd, KernelRefusal> {
    let mut options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    let anonymous = &mut options.__bindgen_anon_1;
    if user {
        anonymous.uprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_3 {
            cnt: 1,
            path: ptr::without_provenance::<c_char>(NOWHERE),
            offsets: ptr::without_provenance(NOWHERE),
            ..Default::default()
        };
    } else {
        anonymous.kprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
            cnt: 1,
            addrs: ptr::without_provenance(NOWHERE),
            ..Default::default()
        };
    }
    // SAFETY: libbpf hands the address on as a number; the kernel alone reads there, and may not.
    owned(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, attach, &options) })
}

/// Asks perf for a probe of this type, at a function or in a file whose name stands [`NOWHERE`].
pub(super) fn probe_nowhere(kind: u32) -> Result<OwnedFd, KernelRefusal> {
    let mut event = sys::perf_event_attr {
        type_: kind,
        ..Default::default()
    };
    event.__bindgen_anon_3.config1 = NOWHERE as u64;
    open_disabled(event)
}

/// Places a uprobe in this program, at a site that nothing calls just now; perf's type of event is `kind`.
pub(super) fn uprobe(kind: u32, offset: usize) -> Result<OwnedFd, KernelRefusal> {
    let mut event = sys::perf_event_attr {
        type_: kind,
        ..Default::default()
    };
    event.__bindgen_anon_3.config1 = c"/proc/self/exe".as_ptr().expose_provenance() as u64;
    event.__bindgen_anon_4.config2 = offset as u64;
    open_disabled(event)
}

/// Opens the event of this process that counts page faults, not started.
pub(super) fn page_faults() -> Result<OwnedFd, KernelRefusal> {
    open_disabled(sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_PAGE_FAULTS.into(),
        ..Default::default()
    })
}

fn open_disabled(mut event: sys::perf_event_attr) -> Result<OwnedFd, KernelRefusal> {
    const ANY_CPU: i32 = -1;
    event.set_disabled(1);
    open_event(event, 0, ANY_CPU)
        .map_err(|error| KernelRefusal::from_errno(error.raw_os_error().unwrap_or(0)))
}

/// Opens an event of perf, for a thread (0: this one, -1: all) on a CPU (-1: any).
pub(crate) fn open_event(
    mut event: sys::perf_event_attr,
    thread: i32,
    cpu: i32,
) -> io::Result<OwnedFd> {
    const NO_GROUP: i32 = -1;
    event.size = size_of::<sys::perf_event_attr>() as u32;
    // SAFETY: the event outlives the call, and says how long it is.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &event,
            thread,
            cpu,
            NO_GROUP,
            sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    match i32::try_from(answer) {
        // SAFETY: not negative, it is a descriptor that the kernel has just opened for this call alone.
        Ok(answer @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(answer) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The numbers of the active security modules; `None` before Linux 6.8, which has no call for them.
pub(super) fn security_modules() -> Option<Vec<u64>> {
    /// lsm_list_modules(2), by the same number everywhere; the C library has no name for it yet.
    const LSM_LIST_MODULES: libc::c_long = 461;
    let mut numbers = vec![0u64; 64];
    let mut bytes = (numbers.len() * size_of::<u64>()) as u32;
    // SAFETY: there is as much room as `bytes` says, and both outlive the call.
    let count = unsafe { libc::syscall(LSM_LIST_MODULES, numbers.as_mut_ptr(), &mut bytes, 0u32) };
    numbers.truncate(usize::try_from(count).ok()?);
    Some(numbers)
}

fn owned(answer: i32) -> Result<OwnedFd, KernelRefusal> {
    done(answer)?;
    // SAFETY: not negative, it is a descriptor that the kernel has just opened for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}

/// libbpf answers with the negative number of the error.
fn done(answer: i32) -> Result<(), KernelRefusal> {
    match answer {
        0.. => Ok(()),
        error => Err(KernelRefusal::from_errno(-error)),
    }
}
