//! Mounts, in a helper thread that has a mount namespace of its own; and a file system that is mounted nowhere.

use std::{
    ffi::{CStr, CString},
    os::fd::OwnedFd,
    path::Path,
};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat},
    io::{Errno, pread, write},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
        MoveMountFlags, UnmountFlags, fsconfig_create, fsmount, fsopen, mount, mount_bind,
        mount_change, mount_remount, move_mount, unmount,
    },
};

use crate::{
    error::{Result, Step},
    helper::Helper,
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "mount",
        "in another thread: mount (bind), mount (remount, read only), umount2",
        bind,
    ),
    Stimulus::new("tmpfs", "in another thread: mount (tmpfs), umount2", tmpfs),
    Stimulus::new(
        "overlay",
        "in another thread: mount (tmpfs, then overlay on it), openat of a file of the lower layer to write (copied up), \
         openat (create), umount2 ×2",
        overlay,
    ),
    Stimulus::new(
        "fsopen",
        "in another thread: fsopen (tmpfs), fsconfig, fsmount, close, move_mount, umount2, close",
        open_file_system,
    ),
    Stimulus::new(
        "page-cache",
        "openat (create), write and pread64 of 4 KiB, close, unlinkat: on a ramfs, which has pages in the page cache",
        use_page_cache,
    ),
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

fn overlay(context: &Context) -> Result<Prepared> {
    apart(context, |folder| {
        mount(
            "stimulus",
            folder,
            "tmpfs",
            MountFlags::empty(),
            c"size=256k",
        )?;
        let layered = on_layers(folder);
        detach(folder)?;
        layered
    })
}

/// Copies a file up and makes another one, in an overlay of two folders in this one.
fn on_layers(folder: &Path) -> rustix::io::Result<()> {
    let at = |name: &str| folder.join(name);
    for name in ["lower", "upper", "work", "merged"] {
        mkdirat(CWD, at(name), Mode::RWXU)?;
    }
    let create = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    write(openat(CWD, at("lower/old"), create, Mode::RUSR)?, &[1; 64])?;
    let folder = folder.display();
    let options = format!("lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work");
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let merged = at("merged");
    mount(
        "stimulus",
        &merged,
        "overlay",
        MountFlags::empty(),
        options.as_c_str(),
    )?;
    let opened = openat(
        CWD,
        at("merged/old"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .and_then(|_| openat(CWD, at("merged/new"), create, Mode::RUSR));
    drop(opened?);
    detach(&merged)
}

fn open_file_system(context: &Context) -> Result<Prepared> {
    apart(context, |folder| {
        let mounted = detached("tmpfs")?;
        let from_file = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&mounted, "", CWD, folder, from_file)?;
        detach_lazily(folder)
    })
}

/// Mounts a new file system nowhere: it exists while it is open.
fn detached(kind: &str) -> rustix::io::Result<OwnedFd> {
    let system = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&system)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&system, flags, MountAttrFlags::empty())
}

/// Unmounts a file system that this thread still has open.
fn detach_lazily(folder: &Path) -> rustix::io::Result<()> {
    unmount(folder, UnmountFlags::DETACH)
}

fn use_page_cache(_: &Context) -> Result<Prepared> {
    const PAGE: usize = 4096;
    let system = detached("ramfs").step("make a ramfs")?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let file = openat(&system, "file", flags, Mode::RUSR)?;
        expect_bytes(write(&file, &[1; PAGE])?, PAGE)?;
        expect_bytes(pread(&file, &mut [0; PAGE], 0)?, PAGE)?;
        drop(file);
        unlinkat(&system, "file", AtFlags::empty())?;
        Ok(())
    }))
}
