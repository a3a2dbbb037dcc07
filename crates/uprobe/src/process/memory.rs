//! A process's memory, read and written through `/proc/PID/mem`.

use super::{
    error::{Error, Result},
    fault, permission,
};
use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::fs::FileExt,
    },
};

/// Bytes for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

/// The memory of one program of a process: after exec, it is still the old one's, and both reads and writes fail.
#[derive(Debug)]
pub struct Memory {
    pid: i32,
    file: File,
}

impl Memory {
    /// Opens a process's memory.
    pub fn open(pid: i32) -> Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Error::NoProcess { pid },
                io::ErrorKind::PermissionDenied => permission::refused(pid),
                _ => Error::system(path, error),
            })?;
        Ok(Memory { pid, file })
    }

    /// The same memory, by another open file.
    pub(super) fn try_clone(&self) -> Result<Self> {
        let file = self.file.try_clone();
        Ok(Memory {
            pid: self.pid,
            file: file.map_err(|error| Error::system("dup", error))?,
        })
    }

    /// Reads bytes at an address.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(bytes, address)
            .map_err(|error| self.error("read", address, error))
    }

    /// Reads so many bytes at an address.
    pub fn read_vec(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads so many bytes at an address, or those that can be read before the first that can't.
    pub fn read_until(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let mut read = 0;
        while let Ok(more @ 1..) = self.file.read_at(&mut bytes[read..], address + read as u64) {
            read += more;
        }
        bytes.truncate(read);
        bytes
    }

    /// Reads one number at an address.
    pub fn read_u64(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes bytes at an address. Where the process itself may only read or execute them, the kernel gives it a
    /// private copy of the page first, and the page stays unwritable. Kernels with CONFIG_PROC_MEM_FORCE_PTRACE do that
    /// only for the thread that traces the process at this moment.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        fault::step();
        self.file
            .write_all_at(bytes, address)
            .map_err(|error| self.error("write", address, error))
    }

    /// Reads a number of 2 bytes.
    pub(super) fn read_u16(&self, address: u64) -> Result<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Returns whether the program has ended, in all processes that have this memory.
    pub(super) fn is_gone(&self) -> bool {
        // Where there is memory, but none at this address, the error is another one.
        matches!(self.read(0, &mut [0]), Err(Error::Gone { .. }))
    }

    /// The number of the open file.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn error(&self, verb: &str, address: u64, error: io::Error) -> Error {
        // Of a process without memory, both reads and writes come to 0 bytes.
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero => {
                Error::Gone { pid: self.pid }
            }
            _ => Error::system(
                format!("{verb} of memory of process {} at {address:#x}", self.pid),
                error,
            ),
        }
    }
}
