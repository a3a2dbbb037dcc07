//! Test runs that pass frames on (b530e9e1063e).

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _},
};

use libbpf_rs::libbpf_sys as sys;

/// Frames that the kernel runs a program on before it lets softirqs run.
pub(super) const BATCH: u64 = 64;

/// Runs an XDP program on so many frames with these bytes.
pub(super) fn run(program: &impl AsFd, frame: &[u8], frames: u32) -> io::Result<()> {
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: frames as i32,
        flags: sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: BATCH as u32,
        ..Default::default()
    };
    // SAFETY: the frame outlives the call and is as long as is named; the kernel copies it.
    let answer = unsafe { sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) };
    match answer {
        0.. => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
