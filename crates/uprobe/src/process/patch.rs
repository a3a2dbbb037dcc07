//! What is changed in a process that is stopped, and changed back: the bytes of functions, and semaphores.

use super::{
    attachment::Attachment,
    error::{Error, Result},
    maps::{Mapping, Origin, mappings},
    memory::Memory,
    runtime::{Known, Runtime, jump},
    site::JUMP,
    tracer::Semaphore,
};

/// The breakpoint of the kernel's uprobes, and of debuggers.
const BREAKPOINT: u8 = 0xcc;

/// Bytes of a function that are replaced by a jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) original: [u8; JUMP],
    pub(super) jump: [u8; JUMP],
    /// Where in which file the bytes are.
    pub(super) origin: Origin,
    /// The address of a semaphore that is raised for it.
    pub(super) semaphore: Option<u64>,
}

impl Replaced {
    /// Whether what it was written to is still there: the same program, and a library that was not unmapped.
    pub(super) fn is_there(&self, address: u64, memory: &Memory, all: &[Mapping]) -> bool {
        let is_readable = memory.read(address, &mut [0; JUMP]).is_ok();
        is_readable && Origin::of(all, address) == Some(self.origin)
    }

    /// Writes the original bytes back to an address, while all threads are stopped. Of a library that was unmapped,
    /// nothing is restored, whatever is there now. An error where the bytes are neither the jump nor the original:
    /// where the rest of them is ours, it is restored nevertheless, and where it isn't, they stay.
    pub(super) fn restore(&self, address: u64, memory: &Memory, all: &[Mapping]) -> Result<()> {
        let mut bytes = [0; JUMP];
        if !self.is_there(address, memory, all)
            || memory.read(address, &mut bytes).is_err()
            || bytes == self.original
        {
            return Ok(());
        }
        if bytes == self.jump {
            return memory.write(address, &self.original);
        }
        // The kernel's uprobe has put its breakpoint there, or the file's byte when it was removed: without the bytes
        // behind, the next call would execute an instruction and the rest of our jump.
        if [BREAKPOINT, self.original[0]].contains(&bytes[0]) && bytes[1..] == self.jump[1..] {
            memory.write(address + 1, &self.original[1..])?;
        }
        Err(Error::Changed {
            function: format!("the jump at {address:#x}"),
            offset: 0,
            expected: self.jump[0],
            found: bytes[0],
        })
    }
}

impl Runtime {
    /// The jump that leads to a site's code.
    pub(super) fn replacement(&self, known: &Known, all: &[Mapping]) -> Result<Replaced> {
        let address = known.site.address;
        Ok(Replaced {
            original: known.site.original,
            jump: jump(self.pid, address, known.entry)?,
            origin: Origin::of(all, address).ok_or(Error::Gone { pid: self.pid })?,
            semaphore: None,
        })
    }

    /// Writes a site's jump, and raises its semaphore first. On an error, [`Self::restore`] undoes what was done.
    pub(super) fn replace(&mut self, known: &Known, replaced: Replaced) -> Result<()> {
        let address = known.site.address;
        self.tracer.add(address, &replaced)?;
        self.replaced.insert(address, replaced);
        self.lead_back(address, &known.moved)?;
        if let Some(semaphore) = known.semaphore {
            self.raise(address, semaphore)?;
            let replaced = Replaced {
                semaphore: known.semaphore,
                ..replaced
            };
            self.replaced.insert(address, replaced);
        }
        self.memory.write(address, &replaced.jump)
    }

    /// Undoes it for all sites of an attachment, wherever the jumps still are. The first error of those that there are.
    pub(super) fn restore(&mut self, attachment: &Attachment) -> Result<()> {
        let mut result = Ok(());
        let all = match mappings(self.pid) {
            // Its memory can't be read either.
            Err(Error::NoProcess { .. }) => Vec::new(),
            other => other?,
        };
        for &address in &attachment.addresses {
            result = result.and(self.restore_one(address, &all));
        }
        self.forget(attachment);
        result
    }

    fn restore_one(&self, address: u64, all: &[Mapping]) -> Result<()> {
        let replaced = self.replaced.get(&address);
        let Some(replaced) = replaced.filter(|one| one.is_there(address, &self.memory, all)) else {
            return Ok(());
        };
        let restored = replaced.restore(address, &self.memory, all);
        let lowered = match replaced.semaphore {
            Some(semaphore) => self.lower(address, semaphore),
            None => Ok(()),
        };
        let led = self.lead_back(address, &[]);
        restored.and(lowered).and(led)
    }

    pub(super) fn forget(&mut self, attachment: &Attachment) {
        for &address in &attachment.addresses {
            self.replaced.remove(&address);
            self.tracer.remove(address);
        }
    }

    /// Adds 1 to the semaphore of the jump at an address, so that the tracer process knows at each step whether it was.
    fn raise(&self, address: u64, semaphore: u64) -> Result<()> {
        let number = self.memory.read_u16(semaphore)?.saturating_add(1);
        let maybe = Semaphore::MaybeRaised(semaphore, number);
        self.tracer.set_semaphore(address, maybe);
        self.memory.write(semaphore, &number.to_le_bytes())?;
        self.tracer
            .set_semaphore(address, Semaphore::Raised(semaphore));
        Ok(())
    }

    /// Takes 1 from it, likewise.
    fn lower(&self, address: u64, semaphore: u64) -> Result<()> {
        let number = self.memory.read_u16(semaphore)?;
        let maybe = Semaphore::MaybeRaised(semaphore, number);
        self.tracer.set_semaphore(address, maybe);
        let lowered = number.saturating_sub(1).to_le_bytes();
        self.memory.write(semaphore, &lowered)?;
        self.tracer.set_semaphore(address, Semaphore::Nothing);
        Ok(())
    }
}
