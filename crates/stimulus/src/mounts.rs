//! Mounts, in a helper thread that has a mount namespace of its own.

use std::{ffi::CStr, path::Path};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    fs::CWD,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
        MoveMountFlags, UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_bind,
        mount_change, mount_remount, move_mount, unmount,
    },
};

use crate::{
    error::{Result, Step},
    helper::Helper,
    stimulus::{Context, Prepared, Stimulus},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "mount",
        "in another thread: mount (bind), mount (remount, read only), umount2",
        bind,
    )
    .waiting(),
    Stimulus::new("tmpfs", "in another thread: mount (tmpfs), umount2", tmpfs).waiting(),
    Stimulus::new(
        "fsopen",
        "in another thread: fsopen (tmpfs), fsconfig, fsmount, move_mount, umount2, close ×2",
        open_file_system,
    )
    .waiting(),
];

/// Runs the operation on a folder, in a thread whose mounts nothing else sees.
fn apart(
    context: &Context,
    operation: impl Fn(&Path) -> rustix::io::Result<()> + Send + 'static,
) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let helper = Helper::start(move || {
        unshare(CloneFlags::CLONE_NEWNS).step("make a mount namespace")?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).step("make mounts private")?;
        Ok(move || Ok(operation(folder.path())?))
    })?;
    Ok(Prepared::new(move || helper.operate()))
}

fn detach(folder: &Path) -> rustix::io::Result<()> {
    unmount(folder, UnmountFlags::empty())
}

fn bind(context: &Context) -> Result<Prepared> {
    apart(context, |folder| {
        mount_bind(folder, folder)?;
        let read_only = MountFlags::BIND | MountFlags::RDONLY;
        let remounted = mount_remount(folder, read_only, "");
        detach(folder)?;
        remounted
    })
}

fn tmpfs(context: &Context) -> Result<Prepared> {
    const SIZE: &CStr = c"size=64k";
    apart(context, |folder| {
        mount("stimulus", folder, "tmpfs", MountFlags::empty(), SIZE)?;
        detach(folder)
    })
}

fn open_file_system(context: &Context) -> Result<Prepared> {
    apart(context, |folder| {
        let system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&system)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        let mounted = fsmount(&system, flags, MountAttrFlags::empty())?;
        let from_file = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mounted, "", CWD, folder, from_file)?;
        detach_lazily(folder)
    })
}

/// Unmounts a file system that this thread still has open.
fn detach_lazily(folder: &Path) -> rustix::io::Result<()> {
    unmount(folder, UnmountFlags::DETACH)
}
