//! Check that programs can run in processes of this machine.

use super::error::{Error, Result};

/// HWCAP2's bit for FSGSBASE.
const HWCAP2_FSGSBASE: u64 = 1 << 1;

/// An error where they can't: a thread has to find its own memory (FSGSBASE).
pub fn check() -> Result<()> {
    if rustix::param::linux_hwcap().1 as u64 & HWCAP2_FSGSBASE == 0 {
        return Err(Error::NoFsGsBase);
    }
    Ok(())
}
