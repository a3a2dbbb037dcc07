//! Hashes the sources of the pools that the experiment `pool` times, and their compiler, so that records distinguish builds.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The pools, and what times them.
const SOURCES: [&str; 2] = ["../pool/src", "src"];

fn main() {
    let mut files = Vec::new();
    for folder in SOURCES {
        println!("cargo:rerun-if-changed={folder}");
        list(Path::new(folder), &mut files);
    }
    files.sort();
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let compiler = Command::new(rustc).arg("--version").output();
    let compiler = compiler.expect("the compiler starts").stdout;
    let level = env::var("OPT_LEVEL").expect("cargo sets OPT_LEVEL");
    let texts = files
        .iter()
        .map(|path| fs::read(path).expect("a source can be read"));
    let bytes = texts.chain([compiler, level.into_bytes()]).flatten();
    println!("cargo:rustc-env=BPFCOST_POOL_BUILD={:016x}", hash(bytes));
}

/// Adds all files of a folder.
fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            list(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// FNV-1a.
fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
