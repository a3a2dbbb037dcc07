//! Files that the kernel generates.

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::read,
};

use crate::stimulus::{Prepared, Stimulus};

pub(crate) const STIMULI: &[Stimulus] = &[
    Stimulus::new(
        "proc",
        "openat, read, close of /proc/self/status and /proc/self/stat",
        |_| Ok(read_all(&["/proc/self/status", "/proc/self/stat"])),
    ),
    Stimulus::new(
        "sysctl",
        "openat, read, close of /proc/sys/kernel/ostype",
        |_| Ok(read_all(&["/proc/sys/kernel/ostype"])),
    ),
    Stimulus::new(
        "sysfs",
        "openat, read, close of /sys/devices/system/cpu/online",
        |_| Ok(read_all(&["/sys/devices/system/cpu/online"])),
    ),
];

fn read_all(paths: &'static [&str]) -> Prepared {
    Prepared::new(move || {
        for &path in paths {
            let file = openat(CWD, path, OFlags::CLOEXEC, Mode::empty())?;
            read(&file, &mut [0; 4096])?;
        }
        Ok(())
    })
}
