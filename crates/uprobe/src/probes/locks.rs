//! Locks of tables whose holders have ended.
//!
//! A thread sees by itself whether a holder of its own process has ended. Of other processes only the tool knows: their
//! numbers may be of another PID namespace. An update that waited in vain for one says so in the table.

use super::{probes::Probes, table::Table};
use crate::{process::Holders, translate::helpers::Environment};
use std::collections::HashMap;

/// The tool itself as a holder, as `blob/identity.h` has it.
const TOOL: u32 = 0x7fff_ffff;

impl Probes {
    /// Releases locks where an update waited in vain for another process.
    pub(super) fn release_stuck_locks(&self) {
        self.release_locks(|table| table.take_stuck());
    }

    /// Gives forked children the slots of others that have ended. Where that fails, calls are missed, and counted so.
    pub(crate) fn reuse_children(&self) {
        for target in self.targets.values() {
            let reused = target
                .runtime
                .reuse_children(|| self.release_locks(|_| true));
            drop(reused);
        }
    }

    /// Releases the locks of processes that have ended, in tables that are meant.
    pub(super) fn release_locks(&self, is_meant: impl Fn(&Table) -> bool) {
        let mut running = Running::default();
        for table in self.stores.tables().filter(|table| is_meant(table)) {
            // Locks first: whoever has one was there before the processes are looked for.
            for (bucket, lock) in table.locks() {
                if lock != TOOL && !running.has(self, lock) {
                    table.release(bucket, lock);
                }
            }
        }
    }

    /// Takes the values of CPUs from runs whose threads have ended.
    pub(crate) fn release_turns(&self) {
        let mut running = Running::default();
        let Some(turns) = &self.stores.turns else {
            return;
        };
        for (cpu, holder) in turns.holders() {
            if !running.has(self, holder) {
                turns.release(cpu, holder);
            }
        }
    }
}

/// The holders of each process that runs, looked for once.
#[derive(Default)]
struct Running(HashMap<u32, Option<Holders>>);

impl Running {
    fn has(&mut self, probes: &Probes, lock: u32) -> bool {
        let process = lock >> Environment::HOLDER_BITS;
        let holder = lock & ((1 << Environment::HOLDER_BITS) - 1);
        let holders = self.0.entry(process).or_insert_with(|| {
            let mut targets = probes.targets.values();
            let target = targets.find(|target| target.number == process);
            target.map(|target| target.runtime.holders())
        });
        holders.as_ref().is_some_and(|all| all.contains(holder))
    }
}
