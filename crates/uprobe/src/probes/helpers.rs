//! The helpers of one process, by what they do there.

use crate::{
    object::{LoadedObject, LoadedProgram},
    process::{self, Denied, Runtime},
    translate::{
        HelperTable, Instruction,
        helpers::{Blob, Environment},
    },
};
use std::collections::BTreeSet;

/// The helpers that were loaded into a process.
#[derive(Debug)]
pub(super) struct Helpers {
    table: HelperTable,
    quiet: BTreeSet<u32>,
    readers: BTreeSet<u32>,
    run_in_turn: u64,
    needs_guard: bool,
    /// True if the kernel ends faults of a copy: reading takes no system call.
    has_vdso_copy: bool,
}

impl Helpers {
    /// Puts the helpers into a process, and with them what they read memory by, for the programs of an object.
    pub(super) fn load(
        runtime: &mut Runtime,
        mut environment: Environment,
        object: &LoadedObject,
    ) -> process::Result<Self> {
        let Blob { bytes, readers, .. } = Blob::at(0, environment);
        let mut programs = object.programs().iter();
        if object.grows() || programs.any(|one| calls(one).any(|id| readers.contains(&id))) {
            environment.vdso_copy = runtime.install_vdso_copy()?;
        }
        let Environment {
            vdso_copy,
            has_rtm,
            denies_reads,
            ..
        } = environment;
        let needs_guard = vdso_copy.is_none() && !has_rtm && !denies_reads;
        if needs_guard {
            environment.guard = Some(runtime.load_guard()?);
        }
        let mut blob = None;
        let at = runtime.load(bytes.len(), |at| {
            let blob = blob.insert(Blob::at(at, environment));
            Ok::<_, process::Error>(blob.bytes.clone())
        })?;
        let blob = blob.expect("it was just made");
        runtime.set_vdso_caller(at + blob.vdso_copy as u64);
        Ok(Helpers {
            table: blob.helpers,
            quiet: blob.quiet,
            readers,
            run_in_turn: blob.run_in_turn,
            needs_guard,
            has_vdso_copy: vdso_copy.is_some(),
        })
    }

    /// Returns whether those that read need the guard.
    pub(super) fn need_guard(&self) -> bool {
        self.needs_guard
    }

    /// The address of the function that runs a program with the values of a CPU.
    pub(super) fn run_in_turn(&self) -> u64 {
        self.run_in_turn
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
            let asks_to_read = self.readers.contains(id) && !self.has_vdso_copy;
            if asks_to_read {
                denied.read
            } else {
                denied.ask
            }
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
