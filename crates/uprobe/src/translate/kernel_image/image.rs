//! The kernel's report on a loaded program: machine code, and its instructions after verification.

#![allow(unsafe_code)]

use std::io;

use libbpf_rs::libbpf_sys::{self, bpf_map_info, bpf_prog_info};

use crate::translate::{Error, Instruction, error::Result};

/// A program's machine code in the kernel.
#[derive(Debug)]
pub(super) struct Image {
    /// The code of all functions, one behind the other.
    pub(super) code: Vec<u8>,
    /// The kernel address and the length in bytes of each function.
    pub(super) functions: Vec<(u64, usize)>,
    /// The instructions that the code was made of: maps by id.
    pub(super) instructions: Vec<Instruction>,
}

impl Image {
    pub(super) fn read(program: i32) -> Result<Self> {
        let mut sizes = bpf_prog_info::default();
        info(program, &mut sizes)?;
        let mut code = vec![0u8; sizes.jited_prog_len as usize];
        let mut raw = vec![0u64; (sizes.xlated_prog_len as usize).div_ceil(8)];
        let mut starts = vec![0u64; sizes.nr_jited_ksyms as usize];
        let mut lengths = vec![0u32; sizes.nr_jited_func_lens as usize];
        let mut filled = bpf_prog_info {
            jited_prog_len: sizes.jited_prog_len,
            jited_prog_insns: code.as_mut_ptr() as u64,
            xlated_prog_len: sizes.xlated_prog_len,
            xlated_prog_insns: raw.as_mut_ptr() as u64,
            nr_jited_ksyms: sizes.nr_jited_ksyms,
            jited_ksyms: starts.as_mut_ptr() as u64,
            nr_jited_func_lens: sizes.nr_jited_func_lens,
            jited_func_lens: lengths.as_mut_ptr() as u64,
            ..bpf_prog_info::default()
        };
        info(program, &mut filled)?;
        let lengths: Vec<usize> = lengths.iter().map(|length| *length as usize).collect();
        if code.is_empty() || lengths.iter().sum::<usize>() != code.len() || starts.contains(&0) {
            let why = "the kernel does not show it (no root, or no JIT)";
            return Err(Error::KernelImage(why.to_owned()));
        }
        Ok(Image {
            code,
            functions: starts.into_iter().zip(lengths).collect(),
            instructions: raw.into_iter().map(Instruction::from_word).collect(),
        })
    }
}

/// Has the kernel fill in what it knows about a program.
fn info(program: i32, info: &mut bpf_prog_info) -> Result<()> {
    let mut size = u32::try_from(size_of::<bpf_prog_info>()).expect("a small structure");
    // SAFETY: the structure is as large as it says; its buffers are as long as their counts say, or counts are 0.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(program, (&raw mut *info).cast(), &raw mut size)
    };
    asked(result)
}

/// The id of the map that has this file descriptor.
pub(super) fn map_id(fd: i32) -> Result<u32> {
    let mut info = bpf_map_info::default();
    let mut size = u32::try_from(size_of::<bpf_map_info>()).expect("a small structure");
    // SAFETY: the structure is as large as it says.
    let result =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd, (&raw mut info).cast(), &raw mut size) };
    asked(result)?;
    Ok(info.id)
}

fn asked(result: i32) -> Result<()> {
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(Error::KernelImage(format!(
        "the kernel does not show it: {error}"
    )))
}
