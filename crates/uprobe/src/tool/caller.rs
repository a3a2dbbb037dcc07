//! The process that makes a call: its memory and its files.

use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{OwnedFd, RawFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::place::Whose;
use crate::process::Memory;

/// The most bytes of a path.
const PATH_BYTES: usize = 4096;

/// A process of the tool.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) pid: i32,
    process: OwnedFd,
    memory: Memory,
}

impl Caller {
    /// The process of a thread.
    pub(super) fn from_thread(thread: i32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let pid = pid.and_then(|pid| pid.trim().parse().ok());
        let pid: i32 = pid.ok_or(io::ErrorKind::NotFound)?;
        let number = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        Ok(Caller {
            pid,
            process: pidfd_open(number, PidfdFlags::empty())?,
            memory: Memory::open(pid).map_err(io::Error::other)?,
        })
    }

    /// Returns whether a thread is one of it.
    pub(super) fn has(&self, thread: i32) -> bool {
        Path::new(&format!("/proc/{}/task/{thread}", self.pid)).exists()
    }

    /// Returns whether it runs.
    pub(super) fn is_there(&self) -> bool {
        Path::new(&format!("/proc/{}", self.pid)).exists()
    }

    /// Returns whether it is about to probe itself, as bpftrace does for BEGIN and END.
    pub(super) fn probes_itself(&self, file: &Path, whose: Whose) -> bool {
        whose == Whose::One(self.pid) || file == Path::new(&format!("/proc/{}/exe", self.pid))
    }

    /// Bytes of its memory; `EFAULT` where there are none.
    pub(super) fn read(&self, address: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let read = self.memory.read_vec(address, bytes);
        read.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))
    }

    /// Writes its memory; `EFAULT` where it can't.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let written = self.memory.write(address, bytes);
        written.map_err(|_| io::Error::from_raw_os_error(libc::EFAULT))
    }

    /// A file of it, by its number there.
    pub(super) fn file(&self, number: RawFd) -> io::Result<OwnedFd> {
        if number < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(pidfd_getfd(
            &self.process,
            number,
            PidfdGetfdFlags::empty(),
        )?)
    }

    /// Bytes of its memory before a zero.
    pub(super) fn text(&self, address: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.memory.read_until(address, PATH_BYTES);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?);
        Ok(bytes)
    }

    /// A path in its memory, as it leads to the file from here.
    pub(super) fn path(&self, address: u64) -> io::Result<PathBuf> {
        let path = PathBuf::from(OsString::from_vec(self.text(address)?));
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        // Whoever resolves it is another process.
        if let Ok(rest) = path.strip_prefix("/proc/self") {
            return Ok(process.join(rest));
        }
        Ok(match path.strip_prefix("/") {
            Ok(inside) => process.join("root").join(inside),
            Err(_) => process.join("cwd").join(path),
        })
    }

    /// The files of a kind that it has open, by what their links say.
    pub(super) fn files(&self, kind: &str) -> Vec<OwnedFd> {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else {
            return Vec::new();
        };
        let of_kind = entries
            .flatten()
            .filter(|entry| fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == kind));
        let numbers = of_kind.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .filter_map(|number| self.file(number).ok())
            .collect()
    }
}
