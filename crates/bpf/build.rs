//! Compiles each `bpf/NAME.bpf.c` and generates its skeleton as `OUT_DIR/NAME.skel.rs`.

use std::{env, ffi::OsString, path::PathBuf, process::Command};

use libbpf_cargo::SkeletonBuilder;

/// The first clang that knows `may_goto`, as Debian 12 names it.
const CLANG: &str = "clang-19";

const SOURCES: [&str; 3] = ["example", "ladder", "xdp_lb"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var_os("CLANG").unwrap_or_else(|| CLANG.into());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    if let Err(error) = Command::new(&clang).arg("--version").output() {
        panic!(
            "{} does not start ({error}); install it with: scripts/setup.sh",
            clang.display()
        );
    }
    for name in SOURCES {
        if let Err(error) = SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .clang(&clang)
            .clang_args(flags())
            .build_and_generate(out.join(format!("{name}.skel.rs")))
        {
            panic!("bpf/{name}.bpf.c: {error:?}");
        }
    }
}

/// v3 of the instruction set is what every kernel since 5.12 has. Debian keeps `asm/` apart by
/// architecture, which clang does not look into when it compiles for BPF.
fn flags() -> Vec<OsString> {
    let multiarch = format!("/usr/include/{}-linux-gnu", env::consts::ARCH);
    ["-mcpu=v3", "-Wall", "-Werror", "-I", &multiarch]
        .map(OsString::from)
        .to_vec()
}
