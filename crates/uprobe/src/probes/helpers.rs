//! The helpers of one process, by what they do there.

use crate::{
    object::LoadedProgram,
    process::Denied,
    translate::{HelperTable, Instruction, helpers::Blob},
};
use std::collections::BTreeSet;

/// The helpers that were loaded into a process.
#[derive(Debug)]
pub(super) struct Helpers {
    table: HelperTable,
    quiet: BTreeSet<u32>,
    readers: BTreeSet<u32>,
}

impl Helpers {
    pub(super) fn new(blob: Blob) -> Self {
        Helpers {
            table: blob.helpers,
            quiet: blob.quiet,
            readers: blob.readers,
        }
    }

    pub(super) fn table(&self) -> &HelperTable {
        &self.table
    }

    /// Returns the name of a helper that a program calls and that makes system calls, and one of those that is denied. What
    /// the translator writes itself makes none.
    pub(super) fn denied_in(
        &self,
        program: &LoadedProgram,
        denied: Denied,
    ) -> Option<(String, &'static str)> {
        let is_loud = |id: &u32| self.table.address(*id).is_some() && !self.quiet.contains(id);
        let call = |id: &u32| {
            let is_reader = self.readers.contains(id);
            if is_reader { denied.read } else { denied.ask }
        };
        let mut loud = calls(program).filter(is_loud);
        loud.find_map(|id| Some((HelperTable::name(id), call(&id)?)))
    }

    /// Returns whether a program calls a helper that reads memory which may not be there.
    pub(super) fn are_readers_in(&self, program: &LoadedProgram) -> bool {
        calls(program).any(|id| self.readers.contains(&id))
    }
}

fn calls(program: &LoadedProgram) -> impl Iterator<Item = u32> {
    program.instructions.iter().filter_map(Instruction::helper)
}
