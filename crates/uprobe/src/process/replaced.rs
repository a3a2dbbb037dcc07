//! Bytes of a function that are replaced by a jump, and how they are restored.

use super::{
    error::{Error, Result},
    maps::{Mapping, Origin},
    memory::{Memory, Write},
    site::JUMP,
};

/// The breakpoint of the kernel's uprobes, and of debuggers.
const BREAKPOINT: u8 = 0xcc;

/// Bytes of a function that are replaced by a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) original: [u8; JUMP],
    pub(super) jump: [u8; JUMP],
    /// File and offset of the bytes.
    pub(super) origin: Origin,
    /// The address of a semaphore that is raised for it.
    pub(super) semaphore: Option<u64>,
}

impl Replaced {
    /// Returns whether the file is still mapped there: another program, or what came in place of a library, is not ours.
    pub(super) fn is_mapped(&self, address: u64, memory: &Memory, all: &[Mapping]) -> bool {
        let read = memory.read(address, &mut [0; JUMP]);
        read.is_ok() && Origin::find(all, address) == Some(self.origin)
    }

    /// An error where the jump at an address is not there as it was written.
    pub(super) fn check(&self, function: &str, address: u64, memory: &Memory) -> Result<()> {
        let mut bytes = [0; JUMP];
        memory.read(address, &mut bytes)?;
        let mut pairs = self.jump.into_iter().zip(bytes);
        let Some(offset) = pairs.position(|(jump, now)| jump != now) else {
            return Ok(());
        };
        Err(Error::Changed {
            function: function.to_owned(),
            offset: offset as u64,
            expected: self.jump[offset],
            found: bytes[offset],
        })
    }

    /// Has `write` put the original bytes back to an address, while all threads are stopped. An error where the bytes
    /// are neither the jump nor the original: where the rest of them is ours, it is restored nevertheless, and where it
    /// isn't, they stay.
    pub(super) fn restore(
        &self,
        address: u64,
        memory: &Memory,
        mut write: impl FnMut(Write) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = [0; JUMP];
        memory.read(address, &mut bytes)?;
        if bytes == self.original {
            return Ok(());
        }
        let mut put_back = |from: usize| {
            write(Write {
                address: address + from as u64,
                bytes: self.original[from..].to_vec(),
            })
        };
        if bytes == self.jump {
            return put_back(0);
        }
        // The kernel's uprobe has put its breakpoint there, or the file's byte when it was removed: without the bytes
        // behind, the next call would execute an instruction and the rest of our jump.
        if [BREAKPOINT, self.original[0]].contains(&bytes[0]) && bytes[1..] == self.jump[1..] {
            put_back(1)?;
        }
        Err(Error::Changed {
            function: format!("the jump at {address:#x}"),
            offset: 0,
            expected: self.jump[0],
            found: bytes[0],
        })
    }
}
