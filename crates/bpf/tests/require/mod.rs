//! Checks that this machine can run a test. A skip says why, and is a failure where `BPFCOST_REQUIRE` names its kind:
//! `host`, `vm`, `features`, `benchstat`, `modules` or `built` (CONTRIBUTING.md, Tests). No test skips in another way.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::{fmt::Display, fs};

/// CAP_BPF's bit in `CapEff`; with CAP_SYS_ADMIN's, which older kernels ask for.
const CAP_BPF: u64 = 1 << 39;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Returns true if the test can go on. Prints the reason where not.
#[track_caller]
pub(crate) fn host() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let able = capabilities & (CAP_BPF | CAP_SYS_ADMIN) != 0;
    if !able {
        skip("CAP_BPF is missing; run the tests as root");
    }
    able
}

/// Returns true if `BPFCOST_REQUIRE` names a kind.
pub(crate) fn required(kind: &str) -> bool {
    let required = std::env::var("BPFCOST_REQUIRE").unwrap_or_default();
    required.split(',').any(|one| one.trim() == kind)
}

/// Prints why a test of the kind `host` is skipped.
#[track_caller]
pub(crate) fn skip(why: impl Display) {
    skip_as("host", why);
}

/// Prints why a test, or a part of it, is skipped.
#[track_caller]
pub(crate) fn skip_as(kind: &str, why: impl Display) {
    assert!(!required(kind), "{kind} is required, but {why}");
    eprintln!("SKIPPED: {why}");
}
