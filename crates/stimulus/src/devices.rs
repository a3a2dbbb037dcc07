//! Devices.

use std::{fs, io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{pread, read, write},
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
    )
    .waiting(),
    Stimulus::new(
        "getrandom",
        "getrandom of 64 bytes (GRND_INSECURE: waits for no entropy)",
        random,
    ),
    Stimulus::new(
        "terminal",
        "open of /dev/ptmx, ioctl ×2 (TIOCSPTLCK, TIOCGPTPEER), write, read, close ×2",
        terminal,
    )
    .waiting(),
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
