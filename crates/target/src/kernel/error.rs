//! What can go wrong with kernels: what, why, and what to do next.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// What `kernel add` takes.
pub(super) const WORDS: &str = "Suites: bookworm (6.1), trixie (6.12), sid (the newest), or \
     another suite of the mirror; the path of an image must contain a /, e.g. ./vmlinuz";

/// What to do where a suite will not do.
pub(super) const ANOTHER: &str =
    "Try another suite: bookworm (6.1), trixie (6.12), sid (the newest)";

/// Advice to name another mirror than the one that will not do.
pub(super) const OTHER_MIRROR: &str =
    "another mirror: --mirror URL, e.g. http://deb.debian.org/debian";

/// Why a kernel can't be had.
#[derive(Debug, Error)]
pub enum Error {
    /// What was asked for is wrong: what, and what can be asked for.
    #[error("{0}")]
    Input(String),
    /// Something is not there, or not as it has to be: what, and what to do.
    #[error("{0}")]
    Lacking(String),
    /// The suite lacks a package.
    #[error("{0}")]
    NoPackage(String),
    /// A kept kernel is not what was added.
    #[error("the kernel {release} is damaged: {what}\n  {advice}")]
    Damaged {
        /// Its release, which is the name of its folder.
        release: String,
        /// What differs.
        what: String,
        /// How to get it back.
        advice: String,
    },
    /// A file can't be read or written.
    #[error(
        "cannot {doing} {path}: {source}\n  Kernels are stored in \
         $XDG_CACHE_HOME/bpfcost/kernels, by default ~/.cache/bpfcost/kernels"
    )]
    File {
        /// `read`, `write`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Interrupted by Ctrl-C.
    #[error(
        "interrupted; the unfinished kernel was removed\n  To start over, run the same command \
         again"
    )]
    Interrupted,
}

/// ` (there are: …)`.
pub(super) fn here(there: &[String]) -> String {
    if there.is_empty() {
        "; there is none yet".to_owned()
    } else {
        format!("; there are: {}", there.join(", "))
    }
}

/// A program failed in a way that is not known here, with these words.
pub(super) fn program_failed(program: &str, words: &str) -> Error {
    Error::Lacking(format!(
        "{program} failed: {words}\n  Try again, or add a kernel by its path: bpfcost kernel add PATH"
    ))
}

/// The disk filled up under way, where that was being written.
pub(super) fn disk_full(path: &Path) -> Error {
    Error::Lacking(format!(
        "the disk is full: {} could not be written; the unfinished kernel was removed\n  Make \
         room (bpfcost kernel remove NAME), or store kernels elsewhere: XDG_CACHE_HOME=FOLDER",
        path.display()
    ))
}

/// Debian packages no such kernel for this CPU.
pub(super) fn no_architecture(arch: &str) -> Error {
    Error::Lacking(format!(
        "bpfcost does not know Debian's kernels for {arch}\n  Add one by its path: bpfcost kernel \
         add PATH"
    ))
}

/// Says what could not be done with a file; a full disk is said as such.
pub(super) fn failed(
    doing: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => disk_full(&path),
        _ => Error::File {
            doing,
            path,
            source,
        },
    }
}
