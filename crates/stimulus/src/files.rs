//! Contents of files.

use std::{fs, io::IoSlice};

use rustix::{
    fs::{
        CWD, FallocateFlags, FlockOperation, MemfdFlags, Mode, OFlags, ResolveFlags, SealFlags,
        SeekFrom, copy_file_range, fallocate, fcntl_add_seals, fcntl_lock, fdatasync, flock, fsync,
        ftruncate, memfd_create, open, openat, openat2, seek, sendfile, syncfs,
    },
    io::{Errno, pread, pwrite, read, write, writev},
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes, expect_error},
};

const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC);
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const PAGE: usize = 4096;

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "open",
        "open, close, openat, close, openat2, close",
        open_file,
    ),
    Stimulus::new(
        "open-missing",
        "open, openat: no such file",
        open_missing_file,
    )
    .failing(),
    Stimulus::new(
        "file-write",
        "openat (create, truncate), write of 4 KiB, pwrite64, writev, close",
        write_file,
    ),
    Stimulus::new("file-read", "lseek, read of 4 KiB, pread64", read_file),
    Stimulus::new("truncate", "ftruncate ×2, to 64 KiB and to 0", truncate),
    Stimulus::new("fallocate", "fallocate of 64 KiB, ftruncate", allocate),
    Stimulus::new("fsync", "pwrite64, fsync, pwrite64, fdatasync", sync),
    Stimulus::new("syncfs", "syncfs of a file system in memory", sync_all),
    Stimulus::new(
        "file-copy",
        "copy_file_range, lseek, sendfile: 4 KiB each",
        copy,
    ),
    Stimulus::new(
        "file-lock",
        "flock ×2, fcntl ×2 (F_SETLK): lock, unlock",
        lock,
    ),
    Stimulus::new(
        "memfd",
        "memfd_create, write of 4 KiB, fcntl (F_ADD_SEALS), close",
        memfd,
    ),
];

fn open_file(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("file");
    fs::write(&path, "").step("make a file")?;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        open(&path, READ, Mode::empty())?;
        openat(CWD, &path, READ, Mode::empty())?;
        openat2(CWD, &path, READ, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
        Ok(())
    }))
}

fn open_missing_file(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("missing");
    Ok(Prepared::new(move || {
        let _keep = &folder;
        expect_error(open(&path, READ, Mode::empty()), Errno::NOENT)?;
        expect_error(openat(CWD, &path, READ, Mode::empty()), Errno::NOENT)
    }))
}

fn write_file(context: &Context) -> Result<Prepared> {
    let folder = context.temporary_folder()?;
    let path = folder.path().join("file");
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let _keep = &folder;
        let file = openat(CWD, &path, flags, MODE)?;
        expect_bytes(write(&file, &[1; PAGE])?, PAGE)?;
        expect_bytes(pwrite(&file, &[2; 64], 0)?, 64)?;
        let parts = [IoSlice::new(&[3; 64]), IoSlice::new(&[4; 64])];
        expect_bytes(writev(&file, &parts)?, 128)
    }))
}

fn read_file(context: &Context) -> Result<Prepared> {
    let file = page(context)?;
    Ok(Prepared::new(move || {
        let mut page = [0; PAGE];
        seek(&file, SeekFrom::Start(0))?;
        expect_bytes(read(&file, &mut page)?, PAGE)?;
        expect_bytes(pread(&file, &mut page[..64], 0)?, 64)
    }))
}

fn truncate(context: &Context) -> Result<Prepared> {
    let file = page(context)?;
    Ok(Prepared::new(move || {
        ftruncate(&file, 1 << 16)?;
        ftruncate(&file, 0)?;
        Ok(())
    }))
}

fn allocate(context: &Context) -> Result<Prepared> {
    let file = page(context)?;
    Ok(Prepared::new(move || {
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 16)?;
        ftruncate(&file, 0)?;
        Ok(())
    }))
}

fn sync(context: &Context) -> Result<Prepared> {
    let file = page(context)?;
    Ok(Prepared::new(move || {
        expect_bytes(pwrite(&file, &[1; 64], 0)?, 64)?;
        fsync(&file)?;
        expect_bytes(pwrite(&file, &[2; 64], 0)?, 64)?;
        fdatasync(&file)?;
        Ok(())
    }))
}

fn sync_all(_: &Context) -> Result<Prepared> {
    let file = memfd_create("stimulus", MemfdFlags::CLOEXEC).step("make a file in memory")?;
    Ok(Prepared::new(move || Ok(syncfs(&file)?)))
}

fn copy(context: &Context) -> Result<Prepared> {
    let from = page(context)?;
    let to = page(context)?;
    Ok(Prepared::new(move || {
        let (mut source, mut target) = (0, 0);
        let copied = copy_file_range(&from, Some(&mut source), &to, Some(&mut target), PAGE)?;
        expect_bytes(copied, PAGE)?;
        seek(&to, SeekFrom::Start(0))?;
        expect_bytes(sendfile(&to, &from, Some(&mut 0), PAGE)?, PAGE)
    }))
}

fn lock(context: &Context) -> Result<Prepared> {
    let file = page(context)?;
    Ok(Prepared::new(move || {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        flock(&file, FlockOperation::Unlock)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fcntl_lock(&file, FlockOperation::NonBlockingUnlock)?;
        Ok(())
    }))
}

fn memfd(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("stimulus", flags)?;
        expect_bytes(write(&file, &[1; PAGE])?, PAGE)?;
        fcntl_add_seals(&file, SealFlags::WRITE)?;
        Ok(())
    }))
}

/// A file of one page without a name.
fn page(context: &Context) -> Result<fs::File> {
    let file = tempfile::tempfile_in(&context.folder).step("make a file")?;
    expect_bytes(pwrite(&file, &[1; PAGE], 0).step("write a file")?, PAGE).step("write a file")?;
    Ok(file)
}
