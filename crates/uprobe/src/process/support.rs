//! Whether programs can run in processes of this machine.

use super::error::{Error, Result};
use std::{fs::OpenOptions, os::unix::fs::FileExt as _};

/// HWCAP2's bit for FSGSBASE.
const HWCAP2_FSGSBASE: u64 = 1 << 1;
/// `CONFIG_PROC_MEM_FORCE_PTRACE` and its like refuse a write with this.
const REFUSED: i32 = libc::EIO;
/// A byte that this process itself may not write.
static READ_ONLY: u8 = 0x5a;

/// An error where they can't: a thread has to find its own memory (FSGSBASE), and the tool to write code.
pub fn check() -> Result<()> {
    if rustix::param::linux_hwcap().1 as u64 & HWCAP2_FSGSBASE == 0 {
        return Err(Error::NoFsGsBase);
    }
    // The byte is written as it is.
    let memory = OpenOptions::new().write(true).open("/proc/self/mem");
    let address = &raw const READ_ONLY as u64;
    match memory.and_then(|memory| memory.write_all_at(&[READ_ONLY], address)) {
        Err(error) if error.raw_os_error() == Some(REFUSED) => Err(Error::NoForcedWrites),
        Err(error) => Err(Error::system("/proc/self/mem", error)),
        Ok(()) => Ok(()),
    }
}
