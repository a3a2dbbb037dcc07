//! The library, installed into a folder.

use crate::run;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The folder into which `scripts/install-c.sh` installs it, once for all tests of a run.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let script = root().join("scripts/install-c.sh");
        run(Command::new(script).arg(built()).env("PREFIX", &prefix));
        prefix
    })
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The folder in which cargo built the library for this test.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("a folder").to_owned()
}

/// Has programs that are built or started find the library.
pub(crate) fn with_library(command: &mut Command) -> &mut Command {
    let libraries = prefix().join("lib");
    command
        .env("PKG_CONFIG_PATH", libraries.join("pkgconfig"))
        .env("LD_LIBRARY_PATH", libraries)
}

/// Flags of a compiler, from pkg-config.
pub(crate) fn flags(of: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    let flags = run(with_library(command.args(of).arg("bpfcost_uprobe")));
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a C program of this package by what pkg-config says.
pub(crate) fn compile(source: &str, into: &Path, more: &[&str]) {
    let mut command = Command::new("cc");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    command.args(["-std=c99", "-O1", "-g", "-pthread"]);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.args(more).arg(source).arg("-o").arg(into);
    let flags = flags(&["--cflags", "--libs"]);
    run(with_library(command.args(flags)));
}
