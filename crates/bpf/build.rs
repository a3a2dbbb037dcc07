//! Compiles each `bpf/NAME.bpf.c` and generates its skeleton as `OUT_DIR/NAME.skel.rs`.

use std::{env, ffi::OsString, fs, path::PathBuf, process::Command};

use libbpf_cargo::SkeletonBuilder;

/// The first clang that knows `may_goto`, as Debian 12 names it.
const CLANG: &str = "clang-19";

const SOURCES: &[&str] = &[
    "counter", "driver", "example", "feeder", "l7", "ladder", "probe", "sslsniff", "syscount",
    "tally", "xdp_lb",
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var_os("CLANG").unwrap_or_else(|| CLANG.into());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    let compiler = Command::new(&clang)
        .arg("--version")
        .output()
        .unwrap_or_else(|error| {
            panic!(
                "{} does not start ({error}); install it with: scripts/setup.sh",
                clang.display()
            )
        });
    println!(
        "cargo:rustc-env=BPFCOST_BPF_BUILD={:016x}",
        build_hash(&compiler.stdout)
    );
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

/// FNV-1a over the compiler's version and every source, in the order of their names.
fn build_hash(compiler: &[u8]) -> u64 {
    let sources = fs::read_dir("bpf").expect("bpf/ is part of this crate");
    let mut sources: Vec<PathBuf> = sources
        .map(|entry| entry.expect("bpf/ can be read").path())
        .collect();
    sources.sort();
    let version = compiler
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .to_vec();
    let texts = sources
        .iter()
        .map(|path| fs::read(path).expect("bpf/ can be read"));
    let bytes = std::iter::once(version).chain(texts).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
