//! The header declares what the library exports, and what pkg-config says of it is so.

use crate::{
    installed::{flags, prefix, root, with_library},
    run, text,
};
use std::{collections::BTreeSet, path::Path, process::Command};

const PREFIX: &str = "bpfcost_uprobe_";

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = text(&prefix().join("include/bpfcost_uprobe.h"));
    let (_, declarations) = header.split_once("extern \"C\"").expect("declarations");
    let name = |(at, _): (usize, &str)| {
        let rest = &declarations[at..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_')?;
        // Comments name functions with no arguments, and types have no parenthesis.
        let is_declared = rest[end..].starts_with('(') && !rest[end..].starts_with("()");
        is_declared.then(|| rest[..end].to_owned())
    };
    declarations
        .match_indices(PREFIX)
        .filter_map(name)
        .collect()
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let library = prefix().join("lib/libbpfcost_uprobe.so");
    let symbols = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library));
    let exported = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    let exported: BTreeSet<String> = exported.map(str::to_owned).collect();
    assert_eq!(declared(), exported);
    assert!(exported.len() > 20, "{exported:?}");
}

#[test]
fn each_function_is_used_by_a_test() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library");
    let used = ["use.c", "wrong.c", "check.h"].map(|name| text(&tests.join(name)));
    for name in declared() {
        let call = format!("{name}(");
        assert!(used.iter().any(|text| text.contains(&call)), "{name}");
    }
}

#[test]
fn the_version_is_cargos() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(flags(&["--modversion"]), [version]);
    let library = prefix().join("lib/libbpfcost_uprobe.so");
    let file = library.read_link().expect("a link");
    assert_eq!(
        file.to_str(),
        Some(&*format!("libbpfcost_uprobe.so.{version}"))
    );
}

/// C++ reads the header, and its names are C's. A program is linked with the static library as pkg-config says.
#[test]
fn cpp_and_the_static_library_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("version");
    let source = root().join("crates/uprobe/c/tests/library/version.cpp");
    let mut command = Command::new(bpfcost_compile::clang());
    // As C++, but without its library, which need not be installed.
    command.args([
        "-x",
        "c++",
        "-nostdlib++",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
    ]);
    command.arg(source).arg("-o").arg(&program);
    // A linker prefers the shared one of the same name.
    for flag in flags(&["--cflags", "--libs", "--static"]) {
        command.arg(flag.replace("-lbpfcost_uprobe", "-l:libbpfcost_uprobe.a"));
    }
    run(with_library(&mut command));
    let printed = run(Command::new(program).env_remove("LD_LIBRARY_PATH"));
    assert_eq!(printed.trim_end(), env!("CARGO_PKG_VERSION"));
}
