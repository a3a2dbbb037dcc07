//! Reads the kernel's code. debugfs shows `[OPTIMIZED]` for a kprobe as soon as the kernel plans it, up to some
//! seconds before the code changes; the code shows its true state.

use super::state::KprobeState;
use crate::{
    cpu::current_cpu,
    error::Result,
    object::{NamedObject, OpenNamed},
    run,
};

/// The first bytes of `int3` and of a `jmp` to an address.
const BREAKPOINT: u8 = 0xcc;
const JUMP: u8 = 0xe9;

const PEEK: &str = "peek";

/// A program that reads there.
pub(super) struct MemoryReader(NamedObject);

impl MemoryReader {
    pub(super) fn load() -> Result<Self> {
        let mut open = OpenNamed::open("driver")?;
        open.with(PEEK)?;
        open.load().map(MemoryReader)
    }

    /// Reads how hits at that address are taken: a breakpoint or a jump; `None` where it is neither.
    pub(super) fn state(&mut self, address: u64) -> Result<Option<KprobeState>> {
        self.0.globals.set("peek_address", address)?;
        run::on_cpu(&self.0.runnable(PEEK)?, current_cpu(), &[])?;
        let [first, ..] = self.0.globals.get("peek_value")?.to_ne_bytes();
        Ok(match first {
            BREAKPOINT => Some(KprobeState::Breakpoint),
            JUMP => Some(KprobeState::Optimised),
            _ => None,
        })
    }
}
