//! BPF C that tests compile, with libbpf's headers.

use std::{fs, path::Path};

use bpfcost_compile::compile;

/// Compiles a source of this crate; returns the object.
pub(crate) fn bpf(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let object = folder.path().join("object.o");
    compile(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(source),
        &object,
        Path::new(env!("BPFCOST_LIBBPF_HEADERS")),
        &["-mcpu=v4"],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    fs::read(object).expect("the object was just written")
}
