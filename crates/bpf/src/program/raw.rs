//! Loads instructions without libbpf's object around them.

#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    ptr,
};

use libbpf_rs::libbpf_sys::{self as sys, bpf_line_info};

use bpfcost_uprobe::object::load_quietly;

use super::{code::Code, effects};

/// Bytes of a program's log. Of a longer one, the kernel keeps the end (since 6.4), which is what matters.
const LOG_BYTES: usize = 1 << 20;
/// Only counts, which cost nothing: but errors have no text.
pub(super) const LOG_COUNTS: u32 = 4;
/// All that the verifier did.
const LOG_ALL: u32 = 1;
/// A person's program may be under any licence: its own load has shown that it may call what it calls.
const LICENCE: &std::ffi::CStr = c"GPL";

/// A program as the kernel is asked to load it.
#[derive(Clone, Debug)]
pub(crate) struct RawProgram {
    pub(super) name: CString,
    pub(super) kind: u32,
    pub(super) attach: u32,
    pub(super) flags: u32,
    /// Number of the type that it attaches to, in the kernel's BTF; 0 without one.
    pub(super) target: u32,
    pub(super) btf: Option<i32>,
    pub(super) code: Code,
    /// A line table, if the kernel is to keep one.
    pub(crate) lines: Vec<bpf_line_info>,
}

/// The kernel's refusal to load it: its answer, and the verifier's log.
#[derive(Debug)]
pub(super) struct RawError {
    pub(super) source: io::Error,
    pub(super) log: String,
}

impl RawProgram {
    /// Loads it; an error has the whole log.
    pub(super) fn load_explained(&self) -> Result<OwnedFd, RawError> {
        // Counts alone are quicker; but they don't say what is wrong.
        let loaded = self.load(LOG_COUNTS).or_else(|first| {
            self.load(LOG_ALL).map_err(|second| RawError {
                // Before 6.4, the second answer may only be that the log has no room.
                source: first.source,
                log: second.log,
            })
        });
        loaded.map(|(program, _)| program)
    }

    /// Loads it, with what the verifier wrote.
    pub(super) fn load(&self, log_level: u32) -> Result<(OwnedFd, String), RawError> {
        let mut log = vec![0u8; LOG_BYTES];
        let functions = &self.code.functions;
        let typed = self.btf.filter(|_| !functions.is_empty());
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as _,
            expected_attach_type: self.attach,
            prog_flags: self.flags,
            attach_btf_id: self.target,
            log_level,
            log_size: log.len() as u32,
            log_buf: log.as_mut_ptr().cast(),
            ..Default::default()
        };
        if let Some(btf) = typed {
            options.prog_btf_fd = btf.cast_unsigned();
            options.func_info = functions.as_ptr().cast();
            options.func_info_cnt = functions.len() as u32;
            options.func_info_rec_size = size_of::<sys::bpf_func_info>() as u32;
            options.line_info = self.lines.as_ptr().cast();
            options.line_info_cnt = self.lines.len() as u32;
            options.line_info_rec_size = size_of::<bpf_line_info>() as u32;
        }
        let instructions = &self.code.instructions;
        // SAFETY: all pointers are to memory that outlives the call, of the lengths beside them.
        let mut load = || unsafe {
            sys::bpf_prog_load(
                self.kind,
                self.name.as_ptr(),
                LICENCE.as_ptr(),
                instructions.as_ptr(),
                instructions.len() as _,
                ptr::from_mut(&mut options),
            )
        };
        let answer = if effects::writes_lines(instructions) {
            load_quietly(load)
        } else {
            load()
        };
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(&log[..end]).into_owned();
        if answer < 0 {
            let source = io::Error::from_raw_os_error(-answer);
            return Err(RawError { source, log });
        }
        // SAFETY: not negative, it is a descriptor that the kernel opened for this call alone.
        Ok((unsafe { OwnedFd::from_raw_fd(answer) }, log))
    }
}

/// Addresses of a loaded program in the kernel's memory.
#[derive(Debug)]
pub(crate) struct Places {
    /// Start addresses of the functions, the program itself first.
    pub(crate) functions: Vec<u64>,
    /// Their bytes.
    pub(crate) lengths: Vec<u32>,
    /// Line table, as verification left it.
    pub(crate) lines: Vec<bpf_line_info>,
    /// Start of each line's machine code.
    pub(crate) line_addresses: Vec<u64>,
}

/// Asks for addresses, which takes `CAP_SYSLOG` or leave to see them.
pub(crate) fn places(program: &OwnedFd) -> io::Result<Places> {
    let sizes = info(program)?;
    let mut places = Places {
        functions: vec![0; sizes.nr_jited_ksyms as usize],
        lengths: vec![0; sizes.nr_jited_func_lens as usize],
        lines: vec![bpf_line_info::default(); sizes.nr_line_info as usize],
        line_addresses: vec![0; sizes.nr_jited_line_info as usize],
    };
    let address = |first: *mut _| first as u64;
    asked(
        program,
        sys::bpf_prog_info {
            nr_jited_ksyms: sizes.nr_jited_ksyms,
            jited_ksyms: address(places.functions.as_mut_ptr()),
            nr_jited_func_lens: sizes.nr_jited_func_lens,
            jited_func_lens: address(places.lengths.as_mut_ptr().cast()),
            nr_line_info: sizes.nr_line_info,
            line_info_rec_size: size_of::<bpf_line_info>() as u32,
            line_info: address(places.lines.as_mut_ptr().cast()),
            nr_jited_line_info: sizes.nr_jited_line_info,
            jited_line_info_rec_size: size_of::<u64>() as u32,
            jited_line_info: address(places.line_addresses.as_mut_ptr()),
            ..sys::bpf_prog_info::default()
        },
    )?;
    if places.functions.contains(&0) || places.line_addresses.contains(&0) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(places)
}

/// Asks the kernel about a loaded program.
pub(super) fn info(program: &OwnedFd) -> io::Result<sys::bpf_prog_info> {
    asked(program, sys::bpf_prog_info::default())
}

/// The same, with the arrays that `info` points to.
fn asked(program: &OwnedFd, mut info: sys::bpf_prog_info) -> io::Result<sys::bpf_prog_info> {
    let mut length = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: the kernel writes at most `length` bytes, and into arrays no more than as many elements as `info` says, which
    // are there: they are the callers', who wait for the call.
    let answer = unsafe {
        sys::bpf_prog_get_info_by_fd(
            program.as_raw_fd(),
            ptr::from_mut(&mut info),
            ptr::from_mut(&mut length),
        )
    };
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    Ok(info)
}
