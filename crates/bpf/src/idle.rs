//! A program that does nothing, for what the kernel's account says of nothing: its clock reads cost time, and
//! a part of that is in the account of every program.

#![allow(unsafe_code)]

use std::{
    ffi::CStr,
    os::fd::{AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys as sys;
use rustix::io::Errno;

use crate::{
    error::{Error, Result, failed},
    feature::kernel,
    stats::RunStats,
};

/// Its name in the kernel.
pub const NAME: &CStr = c"bpfcost_idle";

/// A loaded program that returns at once. It is attached nowhere.
#[derive(Debug)]
pub struct Idle(OwnedFd);

/// What came of some runs of it.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// How long all of them took, with what the system call needs around them.
    pub elapsed: Duration,
    /// What the kernel wrote down of them.
    pub stats: RunStats,
}

impl Idle {
    /// Loads it: a socket filter, which is called as most programs are.
    pub fn load() -> Result<Self> {
        let program = kernel::returns_0(sys::BPF_PROG_TYPE_SOCKET_FILTER);
        kernel::load(program.named(NAME))
            .map(Idle)
            .map_err(|no| refused("loading it", no.errno))
    }

    /// Runs it so many times in one system call. Again from the beginning where a signal comes between.
    pub fn run(&self, times: u32) -> Result<Ran> {
        let packet = [0u8; 64];
        loop {
            let mut options = sys::bpf_test_run_opts {
                sz: size_of::<sys::bpf_test_run_opts>() as _,
                data_in: packet.as_ptr().cast(),
                data_size_in: packet.len() as u32,
                repeat: times as _,
                ..Default::default()
            };
            let before = RunStats::of(&self.0)?;
            let begun = Instant::now();
            // SAFETY: the packet outlives the call and is as long as is named.
            let answer = unsafe { sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) };
            let elapsed = begun.elapsed();
            match answer {
                0.. => {
                    return Ok(Ran {
                        elapsed,
                        stats: RunStats::of(&self.0)?.since(before),
                    });
                }
                error if error == -Errno::INTR.raw_os_error() => {}
                error => return Err(refused("running it", -error)),
            }
        }
    }
}

fn refused(action: &'static str, errno: i32) -> Error {
    failed("a program that does nothing", action)(Errno::from_raw_os_error(errno))
}
