//! The helpers of one process, by what they do there.

use crate::{
    object::LoadedProgram,
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

    /// Returns the name of a helper that a program calls and that makes system calls. What the translator writes itself
    /// makes none.
    pub(super) fn loud_in(&self, program: &LoadedProgram) -> Option<String> {
        let is_loud = |id: &u32| self.table.address(*id).is_some() && !self.quiet.contains(id);
        calls(program).find(is_loud).map(HelperTable::name)
    }

    /// Returns whether a program calls a helper that reads memory which may not be there.
    pub(super) fn are_readers_in(&self, program: &LoadedProgram) -> bool {
        calls(program).any(|id| self.readers.contains(&id))
    }
}

fn calls(program: &LoadedProgram) -> impl Iterator<Item = u32> {
    program.instructions.iter().filter_map(Instruction::helper)
}
