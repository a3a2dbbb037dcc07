//! Compiles each `bpf/NAME.bpf.c`, and writes `objects.rs`, with the compiled object of each name. A new file needs no
//! entry here.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use bpfcost_compile::{clang, compile, headers};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=bpf");
    let headers = headers();
    println!(
        "cargo:rustc-env=BPFCOST_LIBBPF_HEADERS={}",
        headers.display()
    );
    println!(
        "cargo:rustc-env=BPFCOST_LIBBPF_VERSION={}",
        libbpf_version(&headers)
    );
    let files = files();
    let names: Vec<&str> = files.iter().filter_map(|file| program_name(file)).collect();
    for name in &names {
        let source = format!("bpf/{name}.bpf.c");
        let object = out.join(format!("{name}.o"));
        if let Err(error) = compile(Path::new(&source), &object, &headers, &FLAGS) {
            panic!("{error}");
        }
    }
    println!(
        "cargo:rustc-env=BPFCOST_BPF_BUILD={:016x}",
        build_hash(&compiler_version(), &files)
    );
    fs::write(out.join("objects.rs"), objects(&names)).expect("OUT_DIR can be written");
}

fn compiler_version() -> Vec<u8> {
    let compiler = Command::new(clang()).arg("--version").output();
    compiler.expect("it has just compiled").stdout
}

/// The version of the libbpf that the headers belong to, as in `1.7`.
fn libbpf_version(headers: &Path) -> String {
    let path = headers.join("bpf/libbpf_version.h");
    let text = fs::read_to_string(&path).expect("libbpf installs the header of its version");
    let number = |name: &str| {
        let mut lines = text.lines().map(str::split_whitespace);
        let found = lines.find_map(|mut words| {
            (words.next() == Some("#define") && words.next() == Some(name)).then(|| words.next())
        });
        found.flatten().expect("the header defines its version")
    };
    let [major, minor] = ["LIBBPF_MAJOR_VERSION", "LIBBPF_MINOR_VERSION"].map(number);
    format!("{major}.{minor}")
}

/// Everything in `bpf/`, in the order of names.
fn files() -> Vec<PathBuf> {
    let files = fs::read_dir("bpf").expect("bpf/ is part of this crate");
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.expect("bpf/ can be read").path())
        .collect();
    files.sort();
    files
}

/// The name of a program's source; `None` for a header.
fn program_name(file: &Path) -> Option<&str> {
    file.file_name()?.to_str()?.strip_suffix(".bpf.c")
}

/// The expression of a list of names and compiled objects.
fn objects(names: &[&str]) -> String {
    let entries: String = names
        .iter()
        .map(|name| {
            format!("(\"{name}\", include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.o\"))),\n")
        })
        .collect();
    format!("&[{entries}]")
}

/// v3 of the instruction set is what every kernel since 5.12 has.
const FLAGS: [&str; 4] = [
    "-mcpu=v3",
    "-Wall",
    // A program may be called `floor` or `log`: BPF has no C library.
    "-Wno-incompatible-library-redeclaration",
    "-Werror",
];

/// FNV-1a over the compiler's version and every source, in the order of their names.
fn build_hash(compiler: &[u8], files: &[PathBuf]) -> u64 {
    let version = compiler
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .to_vec();
    let texts = files
        .iter()
        .map(|path| fs::read(path).expect("bpf/ can be read"));
    let bytes = std::iter::once(version).chain(texts).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
