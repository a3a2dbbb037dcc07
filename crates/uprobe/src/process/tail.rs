//! Probes at the return of functions that leave by a jump to another one, in a process: their code and their tables.

use super::{
    error::{Error, Result},
    kept::tables,
    layout::{Layout, STATE_TABLES, TABLES},
    memory::{Memory, Write},
    runtime::{Known, Runtime, jump},
    site::Site,
    stopped::status,
    trampoline::{Condition, Context, Role, STUB, Table, Trampoline},
};
use std::fs;

/// Stubs, and the code that they lead to while the site is probed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stubs {
    table: Table,
    returned: u64,
}

impl Runtime {
    /// Makes the code of a site where a function leaves to another one. Returns where the code begins that runs the
    /// program, the code that the site's jump leads to, and what has to lead to the former.
    pub(super) fn tail(
        &mut self,
        site: &Site,
        context: Context,
    ) -> Result<(u64, Trampoline, Stubs)> {
        let table = self.table(site.address)?;
        let role = Role::Replace(table);
        let (_, tail) = self.assemble(site.address, site, Context { role, ..context })?;
        let [_, distance @ ..] = jump(self.pid, site.address, tail.entry)?;
        let role = Role::Returned(Condition {
            address: site.address + 1,
            distance: i32::from_le_bytes(distance),
        });
        let context = Context { role, ..context };
        let (at, returned) = self.assemble(table.stubs, &site.returning(), context)?;
        let returned = returned.entry;
        Ok((at, tail, Stubs { table, returned }))
    }

    /// Returns what has the stubs of a site lead to its code, unless they do: another tool, or other code of this one, may have
    /// had them meanwhile.
    pub(super) fn lead_stubs(&self, known: &Known) -> Result<Option<Write>> {
        let Some(Stubs { table, returned }) = known.stubs else {
            return Ok(None);
        };
        if stub_target(&self.memory, table)? == Some(returned) {
            return Ok(None);
        }
        let bytes = table.stubs(Some(returned)).ok_or(Error::NoGap {
            pid: self.pid,
            size: STUB,
        })?;
        let address = table.stubs;
        Ok(Some(Write { address, bytes }))
    }
}

/// The address that the stubs of a table lead to. `None` where they return by themselves, or are not written yet.
fn stub_target(memory: &Memory, table: Table) -> Result<Option<u64>> {
    let stub = memory.read_vec(table.stubs, STUB as usize)?;
    Ok(Table::target(table.stubs, &stub))
}

/// The writes after which calls return by their stubs alone, where those lead to code of a tool.
pub(super) fn stubs_that_return(
    memory: &Memory,
    layout: Layout,
    is_of_tool: impl Fn(u64) -> bool,
) -> Result<Vec<Write>> {
    let bytes = memory.read_vec(layout.base + STATE_TABLES, TABLES)?;
    let mut writes = Vec::new();
    for (_, table) in tables(&bytes) {
        if stub_target(memory, table)?.is_some_and(&is_of_tool) {
            writes.extend(table.stubs(None).map(|bytes| Write {
                address: table.stubs,
                bytes,
            }));
        }
    }
    Ok(writes)
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
