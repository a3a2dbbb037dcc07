//! Whether this machine can run a test: BPF on the host, and what else it takes. A skip says why, and is a failure
//! where `BPFCOST_REQUIRE` names `host`.

use std::{fmt::Display, fs};

/// CAP_BPF's bit in `CapEff`; with CAP_SYS_ADMIN's, which older kernels ask for.
const CAP_BPF: u64 = 1 << 39;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Whether to go on. Prints the reason where not.
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

/// Tells why a test is skipped.
#[track_caller]
pub(crate) fn skip(why: impl Display) {
    let required = std::env::var("BPFCOST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|one| one == "host"),
        "host is required, but {why}"
    );
    eprintln!("SKIPPED: {why}");
}
