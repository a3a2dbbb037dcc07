//! Reads the kernel's code. debugfs shows `[OPTIMIZED]` for a kprobe as soon as the kernel plans it, up to some
//! seconds before the code changes; the code shows its true state.

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use super::state::KprobeState;
use crate::{
    cpu::current_cpu,
    error::{Result, no_area},
    object::{OwnedSkeleton, choose},
    run::{self, SharedProgram},
    skel::driver::{DriverSkel, DriverSkelBuilder},
    timing::{fetch, store},
};

/// The first bytes of `int3` and of a `jmp` to an address.
const BREAKPOINT: u8 = 0xcc;
const JUMP: u8 = 0xe9;

/// A program that reads there.
pub(super) struct MemoryReader(OwnedSkeleton<DriverSkel<'static>>);

impl MemoryReader {
    pub(super) fn load() -> Result<Self> {
        let load = |storage| {
            let mut open = DriverSkelBuilder::default().open(storage)?;
            choose(open.open_object_mut(), |program| program == "peek");
            open.load()
        };
        Ok(MemoryReader(OwnedSkeleton::new("driver", load)?))
    }

    /// Reads how hits at that address are taken: a breakpoint or a jump; `None` where it is neither.
    pub(super) fn state(&mut self, address: u64) -> Result<Option<KprobeState>> {
        let area = || no_area("driver");
        let skeleton = &mut *self.0;
        let bss = skeleton.maps.bss_data.as_deref_mut().ok_or_else(area)?;
        store(&mut bss.peek_address, address);
        run::on_cpu(
            &SharedProgram::new(&skeleton.progs.peek)?,
            current_cpu(),
            &[],
        )?;
        let [first, ..] = fetch(&bss.peek_value).to_ne_bytes();
        Ok(match first {
            BREAKPOINT => Some(KprobeState::Breakpoint),
            JUMP => Some(KprobeState::Optimised),
            _ => None,
        })
    }
}
