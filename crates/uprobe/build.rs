//! Compiles `blob/helpers.c` for any x86-64 process: freestanding, general registers only; and `bpf/` for the kernel. A
//! package has none of these sources: `scripts/package.sh` put into its `objects/` what this made of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use bpfcost_compile::{clang, compile, headers};

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

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if Path::new("blob").exists() {
        compile_sources(&out);
    } else {
        copy_objects(&out);
    }
}

fn copy_objects(out: &Path) {
    println!("cargo:rerun-if-changed=objects");
    for name in ["helpers.o", "forward.o", "sharers.o", "starts.o"] {
        if let Err(error) = fs::copy(Path::new("objects").join(name), out.join(name)) {
            panic!("objects/{name}: {error}; scripts/package.sh makes packages that have it");
        }
    }
}

fn compile_sources(out: &Path) {
    println!("cargo:rerun-if-changed=blob");
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = clang();
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
    let headers = headers();
    println!(
        "cargo:rustc-env=BPFCOST_LIBBPF_HEADERS={}",
        headers.display()
    );
    for name in ["forward", "sharers", "starts"] {
        let source = format!("bpf/{name}.bpf.c");
        let object = out.join(format!("{name}.o"));
        let flags = ["-mcpu=v3", "-Wall", "-Werror"];
        if let Err(error) = compile(Path::new(&source), &object, &headers, &flags) {
            panic!("{error}");
        }
    }
}
