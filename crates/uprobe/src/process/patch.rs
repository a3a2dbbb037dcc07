//! What is changed in a process that is stopped, and changed back: the bytes of functions, and semaphores.

use super::{
    attachment::Attachment,
    error::{Error, Result},
    jumps::Semaphore,
    maps::{Mapping, Origin, mappings},
    memory::Write,
    replaced::Replaced,
    runtime::{Known, Runtime, jump},
    session::Session,
};

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

    /// Raises the semaphores of sites, and writes their jumps and the code that is still to be written. On an error,
    /// [`Self::restore`] undoes what was done.
    pub(super) fn replace(
        &mut self,
        session: &Session,
        sites: Vec<(&Known, Replaced)>,
    ) -> Result<()> {
        let mut writes = self.pending.clone();
        for (known, replaced) in sites {
            self.register(known, replaced)?;
            writes.extend(self.lead_back(known.site.address, &known.moved)?);
            writes.push(Write {
                address: known.site.address,
                bytes: replaced.jump.to_vec(),
            });
        }
        session.patch(&writes)?;
        self.pending.clear();
        Ok(())
    }

    /// Takes notice of a jump that is about to be written, and raises the site's semaphore.
    fn register(&mut self, known: &Known, replaced: Replaced) -> Result<()> {
        let address = known.site.address;
        self.tracer.add(address, &replaced)?;
        self.replaced.insert(address, replaced);
        if let Some(semaphore) = known.semaphore {
            self.raise(address, semaphore)?;
            let replaced = Replaced {
                semaphore: known.semaphore,
                ..replaced
            };
            self.replaced.insert(address, replaced);
        }
        Ok(())
    }

    /// Undoes it for all sites of an attachment, wherever the jumps still are. The first error of those that there are, but
    /// [`Error::TracerEnded`] before others. The list of jumps keeps them, until [`Self::forget`].
    pub(super) fn restore(&self, session: &Session, attachment: &Attachment) -> Result<()> {
        let all = match mappings(self.pid) {
            // Its memory can't be read either.
            Err(Error::NoProcess { .. }) => Vec::new(),
            other => other?,
        };
        let (mut writes, mut semaphores) = (Vec::new(), Vec::new());
        let mut result = Ok(());
        for &address in &attachment.addresses {
            let Some(replaced) = self.replaced.get(&address) else {
                continue;
            };
            if !replaced.is_mapped(address, &self.memory, &all) {
                continue;
            }
            let restored = replaced.restore(address, &self.memory, |write| {
                writes.push(write);
                Ok(())
            });
            let led = self.lead_back(address, &[]);
            let led = led.map(|back| writes.extend(back));
            result = result.and(restored).and(led);
            semaphores.extend(replaced.semaphore.map(|semaphore| (address, semaphore)));
        }
        match session.patch(&writes) {
            Err(error @ Error::TracerEnded { .. }) => return Err(error),
            // Nothing is left to restore.
            Err(Error::Gone { .. }) => {}
            written => result = result.and(written),
        }
        for (address, semaphore) in semaphores {
            result = result.and(self.lower(address, semaphore));
        }
        result
    }

    /// Ends an attachment that was restored in the process, or whose process is gone: restores what forked children have
    /// of it.
    pub(super) fn forget(&mut self, attachment: &Attachment) -> Result<()> {
        let restored = self.tracer.restore_children(&attachment.addresses);
        for &address in &attachment.addresses {
            self.replaced.remove(&address);
            self.tracer.remove(address);
        }
        restored
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
