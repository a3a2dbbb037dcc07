//! Reads kernel memory, by a program that copies it.

use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    object::{NamedObject, OpenNamed},
    run::{self, SharedProgram},
};

/// See `bpf/kernel_memory.h`.
const CHUNK: usize = 1 << 20;

/// A reader of kernel memory.
pub(super) struct KernelReader {
    program: SharedProgram,
    object: NamedObject,
}

impl KernelReader {
    pub(super) fn load() -> Result<Self> {
        let object = OpenNamed::open("kernel_memory")?.load()?;
        Ok(KernelReader {
            program: object.runnable("copy_memory")?,
            object,
        })
    }

    /// The bytes at an address.
    pub(super) fn bytes(&mut self, address: u64, count: usize) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let chunk = CHUNK.min(count - all.len());
            let from = address.wrapping_add(all.len() as u64);
            let unreadable = || Error::Refused(format!("kernel memory at {from:#x} is unreadable"));
            self.object.globals.set("address", from)?;
            self.object.globals.set("bytes", chunk as u64)?;
            if run::on_cpu(&self.program, current_cpu(), &[])?.code != 0 {
                return Err(unreadable());
            }
            all.extend_from_slice(&self.object.globals.bytes("copy")?[..chunk]);
        }
        Ok(all)
    }

    /// The word at an address.
    pub(super) fn word(&mut self, address: u64) -> Result<u64> {
        let bytes = self.bytes(address, 8)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    /// The half word at an address.
    pub(super) fn half(&mut self, address: u64) -> Result<u32> {
        let bytes = self.bytes(address, 4)?;
        Ok(bytes.try_into().map_or(0, u32::from_le_bytes))
    }
}
