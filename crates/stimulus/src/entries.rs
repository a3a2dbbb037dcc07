//! Entries of folders: made, renamed, listed, removed.

use std::{fs, mem::MaybeUninit, os::unix::fs::symlink};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, mkdirat, mknodat, openat,
    readlinkat_raw, renameat, renameat_with, unlinkat,
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "unlink",
        "openat (create), close, unlink; openat, close, unlinkat",
        unlink,
    ),
    Stimulus::new("rename", "rename, renameat, renameat2, rename", rename),
    Stimulus::new("link", "linkat, unlink", link),
    Stimulus::new(
        "symlink",
        "symlink, readlink, readlinkat, openat (through it), close, unlink",
        symbolic_link,
    ),
    Stimulus::new("mkdir", "mkdir, rmdir, mkdirat, unlinkat", make_folder),
    Stimulus::new(
        "mknod",
        "mknodat (a FIFO), unlinkat, mknodat (a file), unlinkat",
        make_nodes,
    ),
    Stimulus::new(
        "readdir",
        "openat, getdents64 ×2, close: a folder of 4 files",
        list,
    ),
    Stimulus::new("getcwd", "getcwd", current_folder),
];

fn unlink(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("file");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        openat(CWD, &path, flags, MODE)?;
        fs::remove_file(&path)?;
        openat(CWD, &path, flags, MODE)?;
        unlinkat(CWD, &path, AtFlags::empty())?;
        Ok(())
    }))
}

fn rename(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::write(&a, "").step("make a file")?;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        fs::rename(&a, &b)?;
        renameat(CWD, &b, CWD, &a)?;
        renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE)?;
        fs::rename(&b, &a)
    }))
}

fn link(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let (file, other) = (folder.path().join("file"), folder.path().join("other"));
    fs::write(&file, "").step("make a file")?;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        fs::hard_link(&file, &other)?;
        fs::remove_file(&other)
    }))
}

fn symbolic_link(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "").step("make a file")?;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        symlink("file", &link)?;
        fs::read_link(&link)?;
        let mut target = [MaybeUninit::uninit(); 64];
        let (target, _) = readlinkat_raw(CWD, &link, &mut target)?;
        expect_bytes(target.len(), "file".len())?;
        openat(CWD, &link, OFlags::CLOEXEC, Mode::empty())?;
        fs::remove_file(&link)
    }))
}

fn make_folder(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("folder");
    Ok(Prepared::new(move || {
        let _keep = &folder;
        fs::create_dir(&path)?;
        fs::remove_dir(&path)?;
        mkdirat(CWD, &path, Mode::RWXU)?;
        unlinkat(CWD, &path, AtFlags::REMOVEDIR)?;
        Ok(())
    }))
}

fn make_nodes(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("node");
    Ok(Prepared::new(move || {
        let _keep = &folder;
        for kind in [FileType::Fifo, FileType::RegularFile] {
            mknodat(CWD, &path, kind, MODE, 0)?;
            unlinkat(CWD, &path, AtFlags::empty())?;
        }
        Ok(())
    }))
}

fn list(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    for name in ["a", "b", "c", "d"] {
        fs::write(folder.path().join(name), "").step("make a file")?;
    }
    Ok(Prepared::new(move || {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = openat(CWD, folder.path(), flags, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut entries = RawDir::new(&open, &mut buffer);
        while let Some(entry) = entries.next() {
            entry?;
        }
        Ok(())
    }))
}

fn current_folder(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        rustix::process::getcwd(Vec::with_capacity(4096))?;
        Ok(())
    }))
}
