//! What can go wrong with a guest: what, why, the guest's last words, and what to do.

use std::{io, path::PathBuf};

use thiserror::Error;

/// Why a guest can't be started, or did not come to its end.
#[derive(Debug, Error)]
pub enum GuestError {
    /// QEMU is not installed.
    #[error(
        "there is no {0} here, and guests run in QEMU\n  Install it: scripts/setup.sh run, or apt-get install qemu-system-x86"
    )]
    NoQemu(&'static str),
    /// virtme-ng is not installed.
    #[error(
        "there is no virtme-run here: virtme-ng, which composes guests, is missing\n  Install it: \
         scripts/setup.sh run, or pip install virtme-ng=={0} and put its bin folder on PATH"
    )]
    NoVirtme(&'static str),
    /// busybox is not installed.
    #[error(
        "there is no busybox here, which a guest's first file system is made of\n  Install it: \
         scripts/setup.sh run, or apt-get install busybox-static"
    )]
    NoBusybox,
    /// virtme-ng could not compose the guest.
    #[error("virtme-ng can't compose a guest with {image}: {said}")]
    Composing {
        /// The kernel's image.
        image: PathBuf,
        /// Its last words.
        said: String,
    },
    /// A file or process of the guest can't be made.
    #[error("{doing} failed: {source}")]
    Io {
        /// What was under way.
        doing: String,
        /// Why.
        source: io::Error,
    },
    /// The scratch folder's name has characters that mean something else to QEMU or virtme-ng.
    #[error(
        "the folder {0} has a comma, an =, a quote or a \\ in its name, and guests can't be given such a folder\n  \
         Name another place: TMPDIR=DIR"
    )]
    Name(PathBuf),
    /// The scratch folder is full.
    #[error(
        "no room is left in {0} for what the guest writes; make room there, or name another place: TMPDIR=DIR"
    )]
    NoRoom(PathBuf),
    /// The kernel gave up.
    #[error("the guest ({kernel}) {what}{console}")]
    Dead {
        /// The kernel's release.
        kernel: String,
        /// What was seen, as a clause: `had a kernel panic: …`.
        what: String,
        /// Its last words, each on a line of its own, indented; empty where there are none.
        console: String,
    },
    /// The shared folder holds what this program does not write.
    #[error("what the guest wrote can't be read: {0}; please report it")]
    Stream(String),
}

impl GuestError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> GuestError {
        let doing = doing.into();
        move |source| GuestError::Io { doing, source }
    }
}
