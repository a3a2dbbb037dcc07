//! Compiles each `bpf/NAME.bpf.c` and generates `skeletons.rs`, with a module per file, and `objects.rs`, with the
//! compiled object of each name. A new file needs no entry here.

use std::{
    env,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use libbpf_cargo::SkeletonBuilder;

/// The first clang that knows `may_goto`, as Debian 12 names it.
const CLANG: &str = "clang-19";

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
    let files = files();
    println!(
        "cargo:rustc-env=BPFCOST_BPF_BUILD={:016x}",
        build_hash(&compiler.stdout, &files)
    );
    let names: Vec<&str> = files.iter().filter_map(|file| program_name(file)).collect();
    for name in &names {
        // The object stays in OUT_DIR, where the skeleton and the list of objects include it from.
        if let Err(error) = SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .obj(out.join(format!("{name}.o")))
            .reference_obj(true)
            .clang(&clang)
            .clang_args(flags())
            .build_and_generate(out.join(format!("{name}.skel.rs")))
        {
            panic!("bpf/{name}.bpf.c: {error:?}");
        }
        if env::var_os("CARGO_FEATURE_MUTANTS").is_some() {
            let skeleton = out.join(format!("{name}.skel.rs"));
            let text = fs::read_to_string(&skeleton).expect("the skeleton was just written");
            fs::write(&skeleton, replaceable(name, &text)).expect("OUT_DIR can be written");
        }
    }
    for (list, text) in [
        ("skeletons.rs", skeletons(&names)),
        ("objects.rs", objects(&names)),
    ] {
        fs::write(out.join(list), text).expect("OUT_DIR can be written");
    }
}

/// A skeleton that asks `mutant` for its object.
fn replaceable(name: &str, skeleton: &str) -> String {
    let built = "ConfigBuilder::new(&DATA)";
    assert!(skeleton.contains(built), "{name}: another kind of skeleton");
    skeleton.replace(
        built,
        &format!("ConfigBuilder::new(crate::mutant::object(\"{name}\", &DATA))"),
    )
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

/// A module for each skeleton. The generator's code is held to none of the workspace's lints.
fn skeletons(names: &[&str]) -> String {
    names.iter().fold(String::new(), |mut text, name| {
        let _ = write!(
            text,
            "#[allow(warnings, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]\n\
             pub(crate) mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{name}.skel.rs\")); }}\n"
        );
        text
    })
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

/// v3 of the instruction set is what every kernel since 5.12 has. Debian keeps `asm/` apart by
/// architecture, which clang does not look into when it compiles for BPF.
fn flags() -> Vec<OsString> {
    let multiarch = format!("/usr/include/{}-linux-gnu", env::consts::ARCH);
    [
        "-mcpu=v3",
        "-Wall",
        // A program may be called `floor` or `log`: BPF has no C library.
        "-Wno-incompatible-library-redeclaration",
        "-Werror",
        "-I",
        &multiarch,
    ]
    .map(OsString::from)
    .to_vec()
}

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
