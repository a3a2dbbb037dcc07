//! BPF C that tests compile, with libbpf's headers.

use std::{fs, path::Path};

use libbpf_cargo::SkeletonBuilder;

/// Compiles a source of this crate; returns the object.
pub(crate) fn bpf(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let object = folder.path().join("object.o");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang-19".into());
    SkeletonBuilder::new()
        .source(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .obj(&object)
        .clang(clang)
        .clang_args([
            "-mcpu=v4",
            "-D__TARGET_ARCH_x86",
            "-I/usr/include/x86_64-linux-gnu",
        ])
        .build()
        .unwrap_or_else(|error| panic!("{source} does not compile: {error:#}"));
    fs::read(object).expect("the object was just written")
}
