//! An empty program. `bpf_stats` charges part of its clock reads to every program; the run time of this
//! program is that part.

use std::{
    ffi::CStr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use libbpf_rs::libbpf_sys as sys;
use rustix::io::Errno;

use crate::{
    error::{Error, Result, failed},
    feature::kernel,
    stats::RunStats,
};

/// Name of the program in the kernel.
pub const NAME: &CStr = c"bpfcost_idle";

/// A loaded program that returns at once. It is attached nowhere.
#[derive(Debug)]
pub struct Idle(OwnedFd);

/// The result of some runs of it.
#[derive(Clone, Copy, Debug)]
pub struct IdleRuns {
    /// Time that all of them took, with what the system call needs around them.
    pub elapsed: Duration,
    /// The kernel's account of them.
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
    pub fn run(&self, times: u32) -> Result<IdleRuns> {
        let packet = [0u8; 64];
        loop {
            let before = RunStats::read(&self.0)?;
            let begun = Instant::now();
            let answer = kernel::run(&self.0, &packet, times, 0, 0);
            let elapsed = begun.elapsed();
            match answer {
                Ok(()) => {
                    return Ok(IdleRuns {
                        elapsed,
                        stats: RunStats::read(&self.0)?.since(before),
                    });
                }
                Err(no) if no.errno == Errno::INTR.raw_os_error() => {}
                Err(no) => return Err(refused("running it", no.errno)),
            }
        }
    }
}

fn refused(action: &'static str, errno: i32) -> Error {
    failed("a program that does nothing", action)(Errno::from_raw_os_error(errno))
}
