//! Reads kernel memory, by a program that copies it.

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::{
    cpu::current_cpu,
    error::{Error, Result},
    object::OwnedSkeleton,
    run::{self, SharedProgram},
    skel::kernel_memory::{KernelMemorySkel, KernelMemorySkelBuilder},
    timing::store,
};

/// See `bpf/kernel_memory.h`.
const CHUNK: usize = 1 << 20;

/// A reader of kernel memory.
pub(super) struct KernelReader {
    program: SharedProgram,
    skeleton: OwnedSkeleton<KernelMemorySkel<'static>>,
}

impl KernelReader {
    pub(super) fn load() -> Result<Self> {
        let skeleton = OwnedSkeleton::new("kernel_memory", |storage| {
            KernelMemorySkelBuilder::default().open(storage)?.load()
        })?;
        Ok(KernelReader {
            program: skeleton.runnable("copy_memory")?,
            skeleton,
        })
    }

    /// The bytes at an address.
    pub(super) fn bytes(&mut self, address: u64, count: usize) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let chunk = CHUNK.min(count - all.len());
            let from = address.wrapping_add(all.len() as u64);
            let unreadable = || Error::Refused(format!("kernel memory at {from:#x} is unreadable"));
            let area = self.skeleton.maps.bss_data.as_deref_mut();
            let area = area.ok_or_else(unreadable)?;
            store(&mut area.address, from);
            store(&mut area.bytes, chunk as u32);
            if run::on_cpu(&self.program, current_cpu(), &[])?.code != 0 {
                return Err(unreadable());
            }
            let area = self.skeleton.maps.bss_data.as_deref();
            all.extend_from_slice(&area.ok_or_else(unreadable)?.copy[..chunk]);
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
