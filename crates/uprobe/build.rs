//! Compiles `blob/helpers.c` for any x86-64 process: freestanding, general registers only; and `bpf/` for the kernel.

use libbpf_cargo::SkeletonBuilder;
use std::{env, path::PathBuf, process::Command};

/// The compiler of BPF C, which compiles this too.
const CLANG: &str = "clang-19";

/// No red zone, as the private stack of a probe may be followed by anything; one section, so that few relocations
/// are left; no table of unwinding, as nothing unwinds through a probe.
const FLAGS: &[&str] = &[
    "--target=x86_64-unknown-none-elf",
    "-O2",
    "-fno-unroll-loops",
    "-fomit-frame-pointer",
    "-ffreestanding",
    "-fno-builtin",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables",
    "-fno-jump-tables",
    "-fcf-protection=none",
    "-mgeneral-regs-only",
    "-mno-red-zone",
    "-Wall",
    "-Werror",
];

/// Debian keeps `asm/` apart by architecture, which clang does not look into when it compiles for BPF.
const HEADERS: &str = "-I/usr/include/x86_64-linux-gnu";

fn main() {
    println!("cargo:rerun-if-changed=blob");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| CLANG.into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let status = Command::new(&clang)
        .args(FLAGS)
        .args(["-c", "blob/helpers.c", "-o"])
        .arg(out.join("helpers.o"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{}: {status}", clang.display()),
        Err(error) => panic!(
            "{} does not start ({error}); install it with: scripts/setup.sh",
            clang.display()
        ),
    }
    for name in ["sharers", "starts"] {
        let source = format!("bpf/{name}.bpf.c");
        let arguments = [
            "-mcpu=v3",
            "-D__TARGET_ARCH_x86",
            "-Wall",
            "-Werror",
            HEADERS,
        ];
        let compiled = SkeletonBuilder::new()
            .source(&source)
            .obj(out.join(format!("{name}.o")))
            .clang(&clang)
            .clang_args(arguments)
            .build();
        if let Err(error) = compiled {
            panic!("{source}: {error:?}");
        }
    }
}
