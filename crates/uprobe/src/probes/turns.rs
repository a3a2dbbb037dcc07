//! Values of CPUs, for tools that read one for each CPU: which run has which (`blob/turn.h`).

use std::sync::atomic::Ordering;

use iced_x86::{
    IcedError,
    code_asm::{CodeAssembler, registers::*},
};

use super::{error::Result, shared_memory::SharedMemory};
use crate::process;

/// Offsets of the runs that found all taken, of the number of CPUs, and of the first CPU's holder; and from one to the next.
const MISSED: usize = 0;
const CPUS: usize = 8;
const HOLDERS: usize = 64;
const HOLDER: usize = 64;

/// Who has the values of each CPU.
#[derive(Debug)]
pub(super) struct Turns {
    memory: SharedMemory,
    cpus: usize,
}

impl Turns {
    /// As many as a tool reads: one for each CPU that the machine may have.
    pub(super) fn create() -> Result<Self> {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1);
        let memory = SharedMemory::create(HOLDERS + cpus * HOLDER, None)?;
        memory.number(CPUS).store(cpus as u64, Ordering::Relaxed);
        Ok(Turns { memory, cpus })
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Number of CPUs.
    pub(super) fn cpus(&self) -> usize {
        self.cpus
    }

    /// Runs that found the values of all CPUs taken: the program did not run.
    pub(super) fn missed(&self) -> u64 {
        self.memory.number(MISSED).load(Ordering::Relaxed)
    }

    /// The CPUs whose values a run has, and their holders.
    pub(super) fn holders(&self) -> Vec<(usize, u32)> {
        let holders = (0..self.cpus).map(|cpu| {
            let holder = self.memory.half(HOLDERS + cpu * HOLDER);
            (cpu, holder.load(Ordering::Acquire))
        });
        holders.filter(|&(_, holder)| holder != 0).collect()
    }

    /// Takes a CPU's values from a holder that ended, if it still has them.
    pub(super) fn release(&self, cpu: usize, holder: u32) {
        let at = self.memory.half(HOLDERS + cpu * HOLDER);
        let _ = at.compare_exchange(holder, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// The most bytes of the code of [`entry`].
pub(super) const ENTRY: usize = 64;

/// Code that runs a program with the values of a CPU, for an address: the function that does, the program, and who has what,
/// by their addresses.
pub(super) fn entry(
    at: u64,
    run_in_turn: u64,
    program: u64,
    turns: u64,
) -> process::Result<Vec<u8>> {
    let write = || -> Result<Vec<u8>, IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.mov(rsi, program)?;
        a.mov(rdx, turns)?;
        a.mov(rax, run_in_turn)?;
        a.jmp(rax)?;
        a.assemble(at)
    };
    write().map_err(|error| process::Error::Code {
        what: "a program's entry".to_owned(),
        reason: error.to_string(),
    })
}
