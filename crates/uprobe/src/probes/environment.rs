//! Facts about the machine and the process, for the helpers.

#![allow(unsafe_code, reason = "asks the CPU what it can")]

use crate::{
    process::{self, Memory},
    translate::helpers::{Environment, clock_gettime_offset},
};
use std::{arch::asm, arch::x86_64::__cpuid_count, fs, os::linux::fs::MetadataExt as _};

/// Number of transactions that are tried, and of those that have to commit.
const TRANSACTIONS: u32 = 64;
const COMMITS: u32 = 48;
/// RDPID in CPUID's leaf 7, ECX.
const RDPID: u32 = 1 << 22;

/// That of a target.
pub(super) fn for_process(pid: i32, memory: &Memory) -> process::Result<Environment> {
    let all = process::mappings(pid)?;
    let vdso = all.iter().find(|mapping| mapping.name == "[vdso]");
    let clock_gettime = vdso.and_then(|vdso| {
        let length = (vdso.end - vdso.start) as usize;
        let image = memory.read_vec(vdso.start, length).ok()?;
        Some(vdso.start + clock_gettime_offset(&image)?)
    });
    let namespace = fs::metadata(format!("/proc/{pid}/ns/pid"));
    Ok(Environment {
        clock_gettime,
        has_areas: true,
        namespace: namespace.map_or((0, 0), |file| (file.st_dev(), file.st_ino())),
        ..for_this_process()
    })
}

/// That of this process, whose threads have no areas.
pub(super) fn for_this_process() -> Environment {
    Environment {
        has_rdpid: __cpuid_count(7, 0).ecx & RDPID != 0,
        has_rtm: has_transactions(),
        ..Environment::default()
    }
}

/// Returns whether transactions commit. A CPU may have the instruction and let each of them abort.
fn has_transactions() -> bool {
    if !std::arch::is_x86_feature_detected!("rtm") {
        return false;
    }
    let mut commits = 0;
    for _ in 0..TRANSACTIONS {
        let committed: u32;
        // SAFETY: the CPU has the instructions; the transaction changes one register.
        unsafe {
            asm!(
                "xor {committed:e}, {committed:e}",
                "xbegin 2f",
                "inc {committed:e}",
                "xend",
                "2:",
                committed = out(reg) committed,
                out("eax") _,
            );
        }
        commits += committed;
    }
    commits >= COMMITS
}
