//! The text of `--version`: enough to find the source of a binary.

use std::{env::consts, sync::LazyLock};

/// Commit that a published binary was built from; `scripts/dist.sh` sets it, so that other builds need no git.
const COMMIT: Option<&str> = option_env!("BPFCOST_COMMIT");

/// Cargo's profile, set by `scripts/dist.sh` too.
const PROFILE: Option<&str> = option_env!("BPFCOST_PROFILE");

static LONG: LazyLock<String> = LazyLock::new(|| {
    let profile = PROFILE.unwrap_or(if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    });
    let linked = if cfg!(target_feature = "crt-static") {
        "static"
    } else {
        "dynamic"
    };
    format!(
        "{version}\ncommit: {commit}\nbuild: {profile}, {arch}-{os}, {linked}\nlibbpf: {libbpf}",
        version = env!("CARGO_PKG_VERSION"),
        commit = COMMIT.unwrap_or("unknown (no release build)"),
        arch = consts::ARCH,
        os = consts::OS,
        libbpf = bpfcost_bpf::LIBBPF_VERSION,
    )
});

/// Version, commit, build and the version of libbpf.
pub(super) fn long() -> &'static str {
    &LONG
}
