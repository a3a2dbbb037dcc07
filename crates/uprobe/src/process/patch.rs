//! Changes to a stopped process, and their reversal: the bytes of functions, and semaphores.

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
            origin: Origin::find(all, address).ok_or(Error::Gone { pid: self.pid })?,
            semaphore: None,
        })
    }

    /// Takes notice of a jump that is about to be written. Returns the writes. On an error, [`Self::restore`] undoes
    /// what was done.
    pub(super) fn replace(&mut self, known: &Known, replaced: Replaced) -> Result<Vec<Write>> {
        let address = known.site.address;
        self.tracer.add(address, &replaced)?;
        self.replaced.insert(address, replaced);
        let mut writes = self.lead_back(address, &known.moved)?;
        writes.extend(self.lead_stubs(known)?);
        writes.push(Write {
            address,
            bytes: replaced.jump.to_vec(),
        });
        Ok(writes)
    }

    /// Raises the semaphore of an address, unless it is raised for its jump already.
    pub(super) fn raise_for(&mut self, address: u64, semaphore: Option<u64>) -> Result<()> {
        let is_raised = |address| {
            self.replaced
                .get(address)
                .is_some_and(|one| one.semaphore.is_some())
        };
        let Some(semaphore) = semaphore.filter(|_| !is_raised(&address)) else {
            return Ok(());
        };
        self.raise(address, semaphore)?;
        if let Some(replaced) = self.replaced.get_mut(&address) {
            replaced.semaphore = Some(semaphore);
        }
        Ok(())
    }

    /// Undoes it for all sites of an attachment where no other has programs, wherever the jumps still are; elsewhere,
    /// those of others stay. The first error of those that there are, but [`Error::TracerEnded`] before others. The
    /// list of jumps keeps them, until [`Self::forget`].
    pub(super) fn restore(&mut self, session: &Session, attachment: &Attachment) -> Result<()> {
        let all = match mappings(self.pid) {
            // Its memory can't be read either.
            Err(Error::NoProcess { .. }) => Vec::new(),
            other => other?,
        };
        let (mut writes, mut semaphores) = (Vec::new(), Vec::new());
        let mut has_lists = false;
        let mut result = Ok(());
        for &address in &attachment.addresses {
            let Some(&replaced) = self.replaced.get(&address) else {
                continue;
            };
            if !replaced.is_mapped(address, &self.memory, &all) {
                continue;
            }
            match self.take_out(address, attachment.number, session) {
                Err(error @ Error::TracerEnded { .. }) => return Err(error),
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
                Ok(Some(write)) => {
                    has_lists = true;
                    writes.push(write);
                    continue;
                }
                Ok(None) => {}
            }
            let restored = replaced.restore(address, &self.memory, |write| {
                writes.push(write);
                Ok(())
            });
            if matches!(restored, Err(Error::Changed { .. })) {
                self.tracer.keep_mapped();
            }
            let led = self.lead_back(address, &[]);
            let led = led.map(|back| writes.extend(back));
            result = result.and(restored).and(led);
            semaphores.extend(replaced.semaphore.map(|semaphore| (address, semaphore)));
        }
        // Code of other probes could only fail.
        let written = if has_lists {
            self.patch(session, writes)
        } else {
            session.patch(&writes)
        };
        match written {
            Err(error @ Error::TracerEnded { .. }) => return Err(error),
            // Nothing is left to restore.
            Err(Error::Gone { .. }) => semaphores.clear(),
            written => result = result.and(written),
        }
        for (address, semaphore) in semaphores {
            result = result.and(self.lower(address, semaphore));
        }
        result
    }

    /// Ends an attachment that was restored in the process, or whose process is gone: restores what forked children
    /// have of it. Where programs of it still run, it is lost.
    pub(super) fn forget(&mut self, attachment: Attachment) -> Result<()> {
        let left = self.forget_members(&attachment);
        let restored = self.tracer.restore_children(&left);
        for address in left {
            self.replaced.remove(&address);
            self.tracer.remove(address);
        }
        if self.is_kept(&attachment) {
            self.lost.push(attachment);
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
