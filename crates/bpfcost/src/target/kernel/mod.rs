//! Kernels for guests: kept in the user's cache, named by version.

use std::path::PathBuf;

/// A kernel that a guest can boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release, as `uname -r` tells it in the guest, e.g. `6.12.107+deb13-amd64`.
    pub release: String,
    /// The image: a bzImage or vmlinuz.
    pub image: PathBuf,
    /// Its modules: a folder like `/lib/modules/RELEASE`, with `modules.dep` in it; `None` for a kernel
    /// that has all in its image.
    pub modules: Option<PathBuf>,
}
