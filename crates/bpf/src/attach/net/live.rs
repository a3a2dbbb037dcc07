//! Test runs that pass frames on (b530e9e1063e).

use std::{io, os::fd::AsFd};

use libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;

use crate::feature::kernel;

/// Frames that the kernel runs a program on before it lets softirqs run.
pub(super) const BATCH: u64 = 64;

/// Runs an XDP program on so many frames with these bytes; the kernel copies them.
pub(super) fn run(program: &impl AsFd, frame: &[u8], frames: u32) -> io::Result<()> {
    let flags = BPF_F_TEST_XDP_LIVE_FRAMES;
    kernel::run(program.as_fd(), frame, frames, flags, BATCH as u32)
        .map_err(|no| io::Error::from_raw_os_error(no.errno))
}
