//! Devices.

use std::{fs, io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Advice, CWD, Mode, OFlags, fadvise, fsync, openat, statfs},
    io::{pread, pwrite, read, write},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    error::{Result, Step},
    stimulus::{Context, Prepared, Stimulus, expect_bytes},
};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "device",
        "openat, write, close of /dev/null; openat, read, close of /dev/zero",
        memory_devices,
    ),
    Stimulus::new(
        "block-read",
        "pread64 (O_DIRECT) of the first 4 KiB of a disk",
        read_disk,
    ),
    Stimulus::new(
        "block-write",
        "pwrite64 of the first 8 KiB of an empty disk (null_blk), fsync: two requests, merged",
        write_disk,
    ),
    Stimulus::new(
        "read-ahead",
        "fadvise64 (DONTNEED), read of the first 4 KiB of an empty disk (null_blk): it and what follows is read",
        read_ahead,
    ),
    Stimulus::new(
        "random-read",
        "fadvise64 (DONTNEED), pread64 of 4 KiB amid an empty disk (null_blk): nothing that follows is read",
        read_amid,
    ),
    Stimulus::new(
        "shared-folder",
        "statfs of a folder of another machine (9p), whose answer comes with an interrupt of a device",
        ask_shared,
    ),
    Stimulus::new(
        "getrandom",
        "getrandom of 64 bytes (GRND_INSECURE: waits for no entropy)",
        random,
    ),
    Stimulus::new(
        "terminal",
        "open of /dev/ptmx, ioctl ×2 (TIOCSPTLCK, TIOCGPTPEER), write, read, close ×2",
        terminal,
    ),
];

fn memory_devices(_: &Context) -> Result<Prepared> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let null = openat(CWD, "/dev/null", flags, Mode::empty())?;
        expect_bytes(write(&null, &[1; 64])?, 64)?;
        drop(null);
        let zero = openat(CWD, "/dev/zero", flags, Mode::empty())?;
        expect_bytes(read(&zero, &mut [1; 64])?, 64)
    }))
}

fn random(_: &Context) -> Result<Prepared> {
    Ok(Prepared::new(|| {
        let read = getrandom(&mut [0_u8; 64], GetRandomFlags::INSECURE)?;
        expect_bytes(read, 64)
    }))
}

fn terminal(_: &Context) -> Result<Prepared> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    Ok(Prepared::new(move || {
        let control = openpt(flags)?;
        unlockpt(&control)?;
        let user = ioctl_tiocgptpeer(&control, flags)?;
        expect_bytes(write(&user, b"x")?, 1)?;
        // A thread of the kernel passes the byte on.
        expect_bytes(read(&control, &mut [0; 8])?, 1)
    }))
}

fn read_disk(_: &Context) -> Result<Prepared> {
    const BLOCK: usize = 4096;
    let disk = open_disk().step("open a block device")?;
    let mut memory = vec![0_u8; 2 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    Ok(Prepared::new(move || {
        expect_bytes(pread(&disk, &mut memory[start..start + BLOCK], 0)?, BLOCK)
    }))
}

/// Writes to a disk that keeps nothing; others have data.
fn write_disk(_: &Context) -> Result<Prepared> {
    const BLOCKS: usize = 8192;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let disk = openat(CWD, "/dev/nullb0", flags, Mode::empty()).step("open a block device")?;
    Ok(Prepared::new(move || {
        expect_bytes(pwrite(&disk, &[1; BLOCKS], 0)?, BLOCKS)?;
        Ok(fsync(&disk)?)
    }))
}

fn read_ahead(_: &Context) -> Result<Prepared> {
    read_uncached(0)
}

fn read_amid(_: &Context) -> Result<Prepared> {
    read_uncached(1 << 20)
}

/// Reads from a disk through the page cache, which has nothing of it.
fn read_uncached(offset: u64) -> Result<Prepared> {
    const BLOCK: usize = 4096;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let disk = openat(CWD, "/dev/nullb0", flags, Mode::empty()).step("open a block device")?;
    Ok(Prepared::new(move || {
        fadvise(&disk, 0, None, Advice::DontNeed)?;
        expect_bytes(pread(&disk, &mut [0; BLOCK], offset)?, BLOCK)
    }))
}

/// Asks for the room of a file system that another machine shares.
fn ask_shared(_: &Context) -> Result<Prepared> {
    let mounts = fs::read_to_string("/proc/self/mounts").step("read the mounts")?;
    let shared = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let folder = words.next()?;
        (words.next()? == "9p").then(|| folder.to_owned())
    });
    let none = io::Error::new(io::ErrorKind::NotFound, "no 9p is mounted here");
    let shared = shared.ok_or(none).step("find a shared folder")?;
    Ok(Prepared::new(move || Ok(statfs(&shared).map(drop)?)))
}

/// Opens a fixed disk that is not empty: the first one that can be opened.
fn open_disk() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let mut disks: Vec<_> = fs::read_dir("/sys/block")?
        .filter_map(io::Result::ok)
        .filter(|disk| {
            let is = |file: &str, value: &str| {
                fs::read_to_string(disk.path().join(file)).is_ok_and(|text| text.trim() == value)
            };
            is("removable", "0") && !is("size", "0")
        })
        .map(|disk| Path::new("/dev").join(disk.file_name()))
        .collect();
    disks.sort();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "this machine has no disk");
    for disk in disks {
        match openat(CWD, &disk, flags, Mode::empty()) {
            Ok(disk) => return Ok(disk),
            Err(refused) => error = refused.into(),
        }
    }
    Err(error)
}
