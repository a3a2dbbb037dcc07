//! Kernel file systems (tracefs, debugfs, cgroup2, …), opened without mounting them. No other process sees them,
//! and they are gone with their descriptor, however this process ends.

use std::{
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{CWD, Mode, OFlags, fstatfs, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// The usual mount points of file systems, and the magic number of each.
const CUSTOM: [(&str, &str, u64); 3] = [
    ("tracefs", "/sys/kernel/tracing", 0x7472_6163),
    ("debugfs", "/sys/kernel/debug", 0x6462_6720),
    ("securityfs", "/sys/kernel/security", 0x7363_6673),
];

/// An opened file system (Linux 5.2; needs CAP_SYS_ADMIN, unless it is mounted by custom).
#[derive(Debug)]
pub struct MountedFs(OwnedFd);

impl MountedFs {
    /// The kernel's file system of that type, e.g. `tracefs`, or the kernel's answer.
    pub fn ask(kind: &str) -> Result<Self, Errno> {
        let opened = || {
            let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            fsmount(
                &context,
                FsMountFlags::FSMOUNT_CLOEXEC,
                MountAttrFlags::empty(),
            )
        };
        // Opening it anew may set options of the one that is mounted.
        match mounted(kind) {
            Some(mounted) => Ok(MountedFs(mounted)),
            None => opened().map(MountedFs),
        }
    }

    /// Returns the root, as processes of the same user find it while this one has it open.
    pub fn path_for_others(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.0.as_raw_fd()
        ))
    }

    /// Returns the root, for a fork that is to keep it.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns where a file of it is found, by this process alone.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{inside}", self.0.as_raw_fd()))
    }
}

/// The folder where that file system is mounted by custom, if it is.
fn mounted(kind: &str) -> Option<OwnedFd> {
    let (_, folder, number) = CUSTOM.iter().find(|(name, _, _)| *name == kind)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, *folder, flags, Mode::empty()).ok()?;
    let is_it = fstatfs(&folder).is_ok_and(|status| status.f_type as u64 == *number);
    is_it.then_some(folder)
}
