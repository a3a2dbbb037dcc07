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

#[cfg(test)]
#[allow(unsafe_code, reason = "calls a helper's function")]
mod tests {
    use super::*;
    use crate::probes::own_helpers::OwnHelpers;
    use std::sync::{Mutex, atomic::AtomicU64};

    /// Offset of the CPU in a probe's frame (`blob/types.h`), and bytes of a frame.
    const TURN: usize = 208;
    const FRAME: usize = 512;
    /// A holder that is no other test's.
    const OTHER: u32 = 77;

    /// The CPU whose values the program had, and the holder of the first one then.
    static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    static TURNS: AtomicU64 = AtomicU64::new(0);

    unsafe extern "C" fn program(frame: *const u8) -> u64 {
        // SAFETY: the frame of the test.
        let cpu = unsafe { frame.add(TURN).cast::<u64>().read_unaligned() };
        SEEN.lock().unwrap().push(cpu);
        let holder = TURNS.load(Ordering::Relaxed) as usize + HOLDERS + cpu as usize * HOLDER;
        // SAFETY: the turns of the test, which live longer.
        let held = unsafe { (holder as *const u32).read_volatile() };
        u64::from(held != 0)
    }

    #[test]
    fn a_run_has_values_that_no_other_has_or_is_missed() {
        let turns = Turns::create().unwrap();
        TURNS.store(turns.memory.address(), Ordering::Relaxed);
        let run = || {
            let mut frame = [0_u8; FRAME];
            let helpers = OwnHelpers::get().unwrap();
            let turns = turns.memory.address() as *mut u8;
            // SAFETY: a frame and turns, as the function takes them.
            unsafe { (helpers.run_in_turn)(frame.as_mut_ptr(), program, turns) }
        };
        let hold = |cpu: usize, holder| {
            let at = turns.memory.half(HOLDERS + cpu * HOLDER);
            at.store(holder, Ordering::Relaxed);
        };
        for free in 0..turns.cpus() {
            (0..turns.cpus()).for_each(|cpu| hold(cpu, if cpu == free { 0 } else { OTHER }));
            assert_eq!(run(), 1, "it holds them meanwhile");
            assert_eq!(SEEN.lock().unwrap().pop(), Some(free as u64));
            assert!(turns.holders().iter().all(|&(cpu, _)| cpu != free));
        }
        assert_eq!(turns.missed(), 0);
        (0..turns.cpus()).for_each(|cpu| hold(cpu, OTHER));
        run();
        assert_eq!((SEEN.lock().unwrap().pop(), turns.missed()), (None, 1));
        turns.release(0, OTHER + 1);
        assert_eq!(turns.holders().len(), turns.cpus());
        turns.release(0, OTHER);
        assert_eq!(turns.holders().len(), turns.cpus() - 1);
    }
}
