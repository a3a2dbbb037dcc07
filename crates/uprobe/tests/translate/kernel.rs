//! The kernel's side: maps, loading, test runs.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr,
};

use bpfcost_uprobe::translate::Instruction;
use libbpf_rs::libbpf_sys::{self as sys, bpf_insn};

use crate::btf;

/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_F_SLEEPABLE`, which programs of the type `syscall` must be.
const SLEEPABLE: u32 = 1 << 4;
const PAGE: usize = 4096;

/// An array whose pages are mapped here too.
#[derive(Debug)]
pub(crate) struct Array {
    fd: OwnedFd,
    pub(crate) value_size: u32,
    pub(crate) entries: u32,
    pages: *mut u8,
    length: usize,
}

impl Array {
    pub(crate) fn new(value_size: u32, entries: u32) -> io::Result<Self> {
        let options = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as _,
            map_flags: MMAPABLE,
            ..Default::default()
        };
        // SAFETY: the name is a C string, and the options are as large as they say.
        let fd = unsafe {
            sys::bpf_map_create(
                sys::BPF_MAP_TYPE_ARRAY,
                c"array".as_ptr(),
                4,
                value_size,
                entries,
                &options,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call made this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = (value_size.next_multiple_of(8) * entries) as usize;
        let length = length.next_multiple_of(PAGE);
        // One page more: what is before the values is the array's descriptor, where the kernel has `struct bpf_array`.
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let before = unsafe { libc::mmap(ptr::null_mut(), PAGE + length, access, private, -1, 0) };
        if before == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: it replaces all but the first page of the mapping that was just made.
        let pages = unsafe {
            libc::mmap(
                before.byte_add(PAGE),
                length,
                access,
                shared,
                fd.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Array {
            fd,
            value_size,
            entries,
            pages: pages.cast(),
            length,
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The address of the first value.
    pub(crate) fn address(&self) -> u64 {
        self.pages as u64
    }

    /// Writes the array's descriptor `distance` bytes before its values, and returns its address.
    pub(crate) fn put_descriptor(&mut self, distance: u64, descriptor: &[u8]) -> u64 {
        let distance = distance as usize;
        assert!(
            (descriptor.len()..=PAGE).contains(&distance),
            "no place for a descriptor"
        );
        // SAFETY: the page before the values is this array's, and the descriptor ends in it.
        unsafe {
            let place = self.pages.sub(distance);
            ptr::copy_nonoverlapping(descriptor.as_ptr(), place, descriptor.len());
            place as u64
        }
    }

    /// All values, as the kernel has them too.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let length = self.value_size.next_multiple_of(8) as usize * self.entries as usize;
        // SAFETY: the mapping is as long, lives as long as this array, and programs only run between such borrows.
        unsafe { std::slice::from_raw_parts_mut(self.pages, length) }
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: the mapping is this array's, and nothing refers to it any more.
        unsafe { libc::munmap(self.pages.sub(PAGE).cast(), PAGE + self.length) };
    }
}

/// Loads a program of the type `syscall`; the verifier's log where it is rejected. `functions` are the first
/// instructions of all functions, if it must have types.
pub(crate) fn load(
    program: &[Instruction],
    functions: Option<(&OwnedFd, &[usize])>,
) -> Result<OwnedFd, String> {
    load_as(sys::BPF_PROG_TYPE_SYSCALL, SLEEPABLE, program, functions, 0)
        .or_else(|_| load_as(sys::BPF_PROG_TYPE_SYSCALL, SLEEPABLE, program, functions, 1))
}

/// The same of the type `raw_tracepoint`: programs of the type `syscall` may sleep, and so make no tail calls.
pub(crate) fn load_raw(
    program: &[Instruction],
    functions: Option<(&OwnedFd, &[usize])>,
) -> Result<OwnedFd, String> {
    let kind = sys::BPF_PROG_TYPE_RAW_TRACEPOINT;
    load_as(kind, 0, program, functions, 0).or_else(|_| load_as(kind, 0, program, functions, 1))
}

/// An array of programs.
pub(crate) fn program_array(slots: u32) -> io::Result<OwnedFd> {
    let kind = sys::BPF_MAP_TYPE_PROG_ARRAY;
    // SAFETY: the name is a C string, and no options are given.
    let fd = unsafe { sys::bpf_map_create(kind, c"programs".as_ptr(), 4, 4, slots, ptr::null()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An array of one value, which nothing can change any more: of a program's constants.
pub(crate) fn read_only(value: &[u8]) -> io::Result<OwnedFd> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as _,
        map_flags: sys::BPF_F_RDONLY_PROG,
        ..Default::default()
    };
    let (kind, bytes) = (sys::BPF_MAP_TYPE_ARRAY, value.len() as u32);
    // SAFETY: the name is a C string, and the options are as large as they say.
    let fd = unsafe { sys::bpf_map_create(kind, c"constants".as_ptr(), 4, bytes, 1, &options) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made this descriptor, and nothing else owns it.
    let map = unsafe { OwnedFd::from_raw_fd(fd) };
    let key = 0_u32;
    // SAFETY: the kernel reads a key of 4 bytes and a value of the map's size.
    let done = unsafe {
        let key = (&raw const key).cast();
        sys::bpf_map_update_elem(fd, key, value.as_ptr().cast(), 0) == 0
            && sys::bpf_map_freeze(fd) == 0
    };
    done.then_some(map).ok_or_else(io::Error::last_os_error)
}

/// Puts a program into a slot of an array.
pub(crate) fn set_slot(array: &OwnedFd, slot: u32, program: &OwnedFd) -> io::Result<()> {
    let fd = program.as_raw_fd();
    let (key, value) = ((&raw const slot).cast(), (&raw const fd).cast());
    // SAFETY: the kernel reads a key and a value of 4 bytes.
    match unsafe { sys::bpf_map_update_elem(array.as_raw_fd(), key, value, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn load_as(
    kind: sys::bpf_prog_type,
    flags: u32,
    program: &[Instruction],
    functions: Option<(&OwnedFd, &[usize])>,
    log_level: u32,
) -> Result<OwnedFd, String> {
    let raw: Vec<bpf_insn> = program.iter().map(|one| bpf_insn::from(*one)).collect();
    let mut log = vec![0u8; if log_level == 0 { 0 } else { 1 << 22 }];
    let infos: Vec<[u32; 2]> = functions
        .map(|(_, starts)| {
            starts
                .iter()
                .map(|start| [*start as u32, btf::FUNCTION])
                .collect()
        })
        .unwrap_or_default();
    let mut options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as _,
        // One attempt: a busy kernel makes libbpf try again by itself.
        prog_flags: flags,
        log_level,
        log_size: log.len() as u32,
        log_buf: if log.is_empty() {
            ptr::null_mut()
        } else {
            log.as_mut_ptr().cast()
        },
        ..Default::default()
    };
    if let Some((btf, _)) = functions {
        options.prog_btf_fd = btf.as_raw_fd() as _;
        options.func_info = infos.as_ptr().cast();
        options.func_info_cnt = infos.len() as u32;
        options.func_info_rec_size = 8;
    }
    // SAFETY: instructions, log and types are as long as they say, and live until the call returns.
    let fd = unsafe {
        sys::bpf_prog_load(
            kind,
            c"translated".as_ptr(),
            c"GPL".as_ptr(),
            raw.as_ptr(),
            raw.len() as _,
            &mut options,
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        let text = CStr::from_bytes_until_nul(&log).map(|log| log.to_string_lossy().into_owned());
        return Err(format!("{error}\n{}", text.unwrap_or_default()));
    }
    // SAFETY: the call made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a program in the kernel on a context, which it may change; its result.
pub(crate) fn run(program: &OwnedFd, context: &mut [u8]) -> io::Result<u32> {
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        ctx_in: context.as_mut_ptr().cast(),
        ctx_size_in: context.len() as u32,
        ..Default::default()
    };
    // SAFETY: the context is as long as it says; the kernel writes it back.
    let result = unsafe { sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(options.retval)
}
