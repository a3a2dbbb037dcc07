//! A process's own table of an array of programs. The kernel's array says which programs are in it; the table has their
//! addresses in the process.

use super::{error::Result, shared_memory::SharedMemory};
use std::sync::atomic::Ordering;

/// A table. The process can't write it.
#[derive(Debug)]
pub(super) struct ProgramTable {
    memory: SharedMemory,
    slots: u32,
}

impl ProgramTable {
    /// A table without programs.
    pub(super) fn create(slots: u32) -> Result<Self> {
        Ok(ProgramTable {
            memory: SharedMemory::create(8 * slots as usize, None)?,
            slots,
        })
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The addresses, 0 where there is no program.
    pub(super) fn addresses(&self) -> Vec<u64> {
        let address = |slot: u32| {
            self.memory
                .number(8 * slot as usize)
                .load(Ordering::Relaxed)
        };
        (0..self.slots).map(address).collect()
    }

    /// Replaces the addresses, while threads may read them: the code has to be there.
    pub(super) fn set(&self, addresses: &[u64]) {
        for (slot, address) in addresses.iter().enumerate() {
            let number = self.memory.number(8 * slot);
            number.store(*address, Ordering::Release);
        }
    }
}
