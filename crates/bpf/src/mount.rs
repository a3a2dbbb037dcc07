//! File systems of the kernel, opened without a place in the tree: nobody else sees them, nothing is
//! mounted, and they are gone with their descriptor, whatever way this process ends.

use std::{
    os::fd::{AsRawFd as _, OwnedFd},
    path::PathBuf,
};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::error::{Error, Result};

/// An opened file system (Linux 5.2; needs CAP_SYS_ADMIN).
#[derive(Debug)]
pub(crate) struct Opened(OwnedFd);

impl Opened {
    /// The kernel's file system of that type, e.g. `tracefs`.
    pub(crate) fn new(kind: &'static str) -> Result<Self> {
        let opened = || {
            let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            fsmount(
                &context,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )
        };
        opened()
            .map(Opened)
            .map_err(|errno: rustix::io::Errno| Error::Attach {
                what: kind.to_owned(),
                action: "opening the file system",
                source: libbpf_rs::Error::from_raw_os_error(errno.raw_os_error()),
            })
    }

    /// Where a file of it is found, by this process alone.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{inside}", self.0.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_opened_is_mounted_nowhere() {
        let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let before = mounts();
        let Ok(opened) = Opened::new("proc") else {
            eprintln!("skipped: opening a file system needs CAP_SYS_ADMIN");
            return;
        };
        assert!(opened.path("uptime").exists());
        assert_eq!(mounts(), before);
    }
}
