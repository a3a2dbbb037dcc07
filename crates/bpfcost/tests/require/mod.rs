//! Whether this machine can run BPF on the host; a skip says why, and is a failure where
//! `BPFCOST_REQUIRE` names `host`.

use std::fs;

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
    if capabilities & (CAP_BPF | CAP_SYS_ADMIN) != 0 {
        return true;
    }
    let required = std::env::var("BPFCOST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|one| one == "host"),
        "host is required, but CAP_BPF is missing"
    );
    eprintln!("SKIPPED: CAP_BPF is missing; run the tests as root");
    false
}
