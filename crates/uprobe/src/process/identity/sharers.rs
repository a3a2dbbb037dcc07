//! Processes that share their memory with the probed one.

use super::super::memory::Memory;
use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};
use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    io::IoSliceMut,
};

/// A number in the process's memory by which that memory is recognised. A forked child, whose memory is a copy, reads 0
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Mark {
    pub(in super::super) address: u64,
    pub(in super::super) number: u64,
}

/// A process that shares the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Sharer {
    pub(in super::super) pid: i32,
    /// The name of its command.
    pub(in super::super) name: String,
}

impl Mark {
    /// Returns a number that no other memory holds at the same address.
    pub(in super::super) fn random() -> u64 {
        RandomState::new().hash_one(()) | 1
    }

    /// Reads the mark that a process has at an address.
    pub(in super::super) fn read(memory: &Memory, address: u64) -> super::super::Result<Self> {
        let number = memory.read_u64(address)?;
        Ok(Mark { address, number })
    }

    /// Returns the processes other than `pid` that have this memory.
    pub(in super::super) fn sharers(self, pid: i32) -> Vec<Sharer> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let sharing = pids.filter(|&other| other != pid && self.is_in(other));
        sharing
            .map(|pid| {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                let name = name.trim_end().to_owned();
                Sharer { pid, name }
            })
            .collect()
    }

    fn is_in(self, pid: i32) -> bool {
        let mut number = [0; 8];
        let remote = RemoteIoVec {
            base: self.address as usize,
            len: number.len(),
        };
        let local = &mut [IoSliceMut::new(&mut number)];
        let read = process_vm_readv(Pid::from_raw(pid), local, &[remote]);
        read == Ok(8) && u64::from_le_bytes(number) == self.number
    }
}
