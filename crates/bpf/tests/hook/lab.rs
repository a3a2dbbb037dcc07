//! The object of this folder, and its hooks.

use std::{path::Path, sync::OnceLock};

use bpfcost_bpf::{
    LIBBPF_HEADERS,
    hook::Hook,
    program::{ObjectFile, Settings},
};
use bpfcost_compile::compile;

/// The object, compiled once.
pub(crate) fn object() -> &'static ObjectFile {
    static OBJECT: OnceLock<ObjectFile> = OnceLock::new();
    OBJECT.get_or_init(|| compiled("hooks.bpf.c"))
}

/// An object of a source file of this folder.
pub(crate) fn compiled(name: &str) -> ObjectFile {
    let object = tempfile::Builder::new().suffix(".bpf.o").tempfile();
    let object = object.expect("a file");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hook");
    let source = source.join(name);
    compile(&source, object.path(), Path::new(LIBBPF_HEADERS), &[]).expect("it compiles");
    ObjectFile::read(object.path()).expect("it can be read")
}

pub(crate) fn hooks() -> Vec<Hook> {
    object().hooks().expect("hooks")
}

pub(crate) fn hook(program: &str) -> Hook {
    let mut hooks = hooks().into_iter();
    let hook = hooks.find(|hook| hook.program == program);
    hook.unwrap_or_else(|| panic!("{program}"))
}

/// Settings for which only this process makes events.
pub(crate) fn of_this_process() -> Settings {
    Settings {
        variables: vec![("traced_process".to_owned(), std::process::id().into())],
        ..Settings::default()
    }
}
