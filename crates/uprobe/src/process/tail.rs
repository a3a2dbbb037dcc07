//! Probes at the return of functions that leave by a jump to another one, in a process: their code and their tables.

use super::{
    area::CodeArea,
    error::{Error, Result},
    memory::Write,
    runtime::{Runtime, jump},
    session::Session,
    site::Site,
    stopped::status,
    trampoline::{Condition, Context, ENTRIES, KEY, Role, STUB, Table, Trampoline},
};
use std::fs;

impl Runtime {
    /// Makes the code of a site where a function leaves to another one. Returns where the code begins that runs the
    /// program, and the code that the site's jump leads to.
    pub(super) fn tail(&mut self, site: &Site, context: Context) -> Result<(u64, Trampoline)> {
        let size = ENTRIES * STUB;
        let stubs = self.code_area(None, Some(site.address), size)?.take(size);
        let keys = self.data_area(stubs, ENTRIES * KEY)?.take(ENTRIES * KEY);
        let table = Table { keys, stubs };
        let role = Role::Replace(table);
        let (_, tail) = self.assemble(site.address, site, Context { role, ..context })?;
        let [_, distance @ ..] = jump(self.pid, site.address, tail.entry)?;
        let role = Role::Returned(Condition {
            address: site.address + 1,
            distance: i32::from_le_bytes(distance),
        });
        let context = Context { role, ..context };
        let (at, returned) = self.assemble(stubs, &site.returning(), context)?;
        let bytes = table.stubs(returned.entry);
        self.pending.push(Write {
            address: stubs,
            bytes: bytes.ok_or(Error::NoGap {
                pid: self.pid,
                size,
            })?,
        });
        Ok((at, tail))
    }

    /// Memory for so many bytes that code near an address can refer to. It is zero.
    fn data_area(&mut self, near: u64, size: u64) -> Result<&mut CodeArea> {
        let found = self.data.iter().position(|area| area.fits(near, size));
        let index = match found {
            Some(index) => index,
            None => {
                let session = Session::one(&self.tracer)?;
                let area = CodeArea::create_data(&session, self.pid, near)?;
                session.finish()?;
                self.data.push(area);
                self.data.len() - 1
            }
        };
        Ok(&mut self.data[index])
    }
}

/// An error where a thread has a shadow stack, which knows the return addresses: none of them may be replaced.
pub(super) fn check_shadow_stacks(pid: i32, site: &Site) -> Result<()> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_err(|_| Error::Gone { pid })?;
    let ids = threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // One that ended meanwhile has none.
    let mut features = ids.filter_map(|tid| status(tid, "x86_Thread_features").ok());
    if !features.any(|features| has_shadow_stack(&features)) {
        return Ok(());
    }
    Err(Error::Unpatchable {
        function: site.function.clone(),
        reason: "it leaves by a jump to another function, and its threads have shadow stacks, which know where that one \
                 returns to"
            .to_owned(),
    })
}

fn has_shadow_stack(features: &str) -> bool {
    features.split_ascii_whitespace().any(|one| one == "shstk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_stack_is_a_feature_of_a_thread() {
        assert!(has_shadow_stack("shstk wrss"));
        assert!(!has_shadow_stack(""));
        assert!(!has_shadow_stack("wrss"));
    }
}
