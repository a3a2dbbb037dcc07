//! Errors of an archive: one line that says what is wrong. What to do about it depends on who asked.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// A file or package of an archive cannot be had.
#[derive(Debug, Error)]
pub enum Error {
    /// A server does not answer, or refuses.
    #[error("{url} cannot be fetched: {why}")]
    Unreachable {
        /// The address, without a password.
        url: String,
        /// The reason.
        why: String,
    },
    /// A server has no such file.
    #[error("{url} does not exist: {why}")]
    Missing {
        /// The address, without a password.
        url: String,
        /// The reason.
        why: String,
    },
    /// A file is not what was signed, or nothing is signed.
    #[error("{what} cannot be trusted: {why}")]
    Untrusted {
        /// The file.
        what: String,
        /// The reason.
        why: String,
    },
    /// The archive has no such suite.
    #[error("{mirror} has no suite {suite}")]
    NoSuite {
        /// The address of the archive, without a password.
        mirror: String,
        /// The suite.
        suite: String,
    },
    /// The suite is not for such machines.
    #[error("{suite} of {mirror} has no packages for {architecture}")]
    NoArchitecture {
        /// The address of the archive, without a password.
        mirror: String,
        /// The suite.
        suite: String,
        /// Debian's name of the architecture.
        architecture: String,
    },
    /// An address is of a form that cannot be fetched.
    #[error("{0}")]
    Url(String),
    /// The system's list of archives cannot be read.
    #[error("{path}, line {line}, is no package source: {why}")]
    Sources {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The reason.
        why: &'static str,
    },
    /// A file is no Debian package, or a damaged one.
    #[error("{file} is not a whole Debian package: {why}")]
    Package {
        /// The file's name.
        file: String,
        /// The reason.
        why: String,
    },
    /// A file of this machine cannot be read or written.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    File {
        /// `read`, `write`, …
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The observer asked for an end.
    #[error("interrupted")]
    Interrupted,
}

/// Makes an error of a file out of the system's.
pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        doing,
        path,
        source,
    }
}
