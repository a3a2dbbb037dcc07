//! `bpf_stats`: the kernel's run counts and run times of programs. The kernel keeps them while a process asks for
//! them.

#![allow(unsafe_code)]

use std::{
    fs,
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd},
};

use libbpf_rs::libbpf_sys as sys;

use crate::error::{Result, failed};

/// Keeps the account of run times on. The kernel counts descriptors of this kind, so that whatever way
/// this process ends, the account is as it was before.
#[derive(Debug)]
pub struct StatsOn(#[allow(dead_code, reason = "held for what its closing does")] OwnedFd);

impl StatsOn {
    /// Turns it on for all programs of the machine (Linux 5.8).
    pub fn start() -> Result<Self> {
        // SAFETY: takes no pointer.
        let answer = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
        if answer < 0 {
            let answer = libbpf_rs::Error::from_raw_os_error(-answer);
            return Err(failed("bpf_stats", "turning it on")(answer));
        }
        // SAFETY: not negative, it is a descriptor that the kernel opened for this call alone.
        Ok(StatsOn(unsafe { OwnedFd::from_raw_fd(answer) }))
    }
}

/// Returns true if the account is on for everyone (`kernel.bpf_stats_enabled`). Whether a process keeps it on by a
/// descriptor is not seen here, but by the runs that it counts.
pub fn enabled_by_sysctl() -> bool {
    fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").is_ok_and(|text| text.trim() != "0")
}

/// The kernel's account of a program's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Time in runs while the account was on, in nanoseconds, a part of what reading the clock costs
    /// included.
    pub run_time_ns: u64,
    /// Runs while the account was on.
    pub run_cnt: u64,
    /// Runs that did not happen, for the program ran already on that CPU.
    pub recursion_misses: u64,
}

impl RunStats {
    /// Reads the account of a loaded program.
    pub fn read(program: &impl AsFd) -> Result<Self> {
        let info = info(program)?;
        Ok(RunStats {
            run_time_ns: info.run_time_ns,
            run_cnt: info.run_cnt,
            recursion_misses: info.recursion_misses,
        })
    }

    /// Reads the account of the program that has this number.
    pub fn of_id(id: u32) -> Result<Self> {
        let program = libbpf_rs::Program::fd_from_id(id)
            .map_err(failed(format!("program {id}"), "opening it by its number"))?;
        Self::read(&program)
    }

    /// Returns what was added since `before`.
    pub fn since(self, before: Self) -> Self {
        RunStats {
            run_time_ns: self.run_time_ns.saturating_sub(before.run_time_ns),
            run_cnt: self.run_cnt.saturating_sub(before.run_cnt),
            recursion_misses: self
                .recursion_misses
                .saturating_sub(before.recursion_misses),
        }
    }
}

/// The kernel's number of a loaded program.
pub(crate) fn number(program: &impl AsFd) -> Result<u32> {
    Ok(info(program)?.id)
}

fn info(program: &impl AsFd) -> Result<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut length = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: the structure outlives the call and is as long as is said; it asks for nothing that
    // would be written elsewhere.
    let answer = unsafe {
        sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut length)
    };
    match answer {
        0.. => Ok(info),
        error => Err(failed("a program", "asking what the kernel knows of it")(
            libbpf_rs::Error::from_raw_os_error(-error),
        )),
    }
}
