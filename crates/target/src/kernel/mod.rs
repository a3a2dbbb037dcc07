//! Kernels for guests: kept in the user's cache, named by version, checked before use.
//!
//! One folder per release, laid out as virtme-ng looks for modules:
//! `RELEASE/boot/vmlinuz-RELEASE`, `RELEASE/lib/modules/RELEASE/`, and `RELEASE/kernel.json`, which says
//! where it came from and what it must look like.

mod apt;
mod command;
mod debian;
mod error;
mod frame_pointer;
mod image;
mod manifest;
mod mirror;
mod modules;
mod observer;
mod place;
mod release;
mod staging;
mod store;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use debian::KNOWN_SUITES;
pub use error::Error;
pub use manifest::{Manifest, Origin, Package};
pub use observer::{SilentObserver, StepObserver};
pub use store::{Addition, KernelEntry, KernelStatus, Store};

/// A kernel that a guest can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release, as `uname -r` prints it in the guest, e.g. `6.12.107+deb13-amd64`.
    pub release: String,
    /// The image: a bzImage or vmlinuz.
    pub image: PathBuf,
    /// Its modules: a folder like `/lib/modules/RELEASE`, with `modules.dep` in it; `None` for a kernel
    /// that has all in its image.
    pub modules: Option<PathBuf>,
}
