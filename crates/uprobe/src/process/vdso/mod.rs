//! A copy of memory whose faults the kernel ends: instructions in the vDSO of the process.
//!
//! The kernel has an exception table for user space, for one instruction: the ENCLU by which the vDSO enters an
//! enclave of Intel SGX. After a fault at its address, before any signal is made, the thread goes on at the fix-up in
//! the same function. The kernel compares addresses alone. So a copy that is written over that instruction reads
//! what may not be there without a signal handler, a question to the kernel, or any other system call; the thread may
//! block all signals. Nothing else needs the function where the kernel offers no enclaves.
//!
//! A thread must never find the original instruction where it expects the copy. A program runs on a frame of its
//! thread's area from before its first instruction until after its last, whatever signals interrupt it. So the
//! original bytes are written back once no frame is taken, while all threads are stopped. With them goes the address by
//! which helpers find the copy: for them it is as if it had never been there.
//!
//! Unwinders may look at a thread that is in the copy, from a handler of a signal. They find the rules of the vDSO's
//! function there, so helpers make the frame that these describe (`blob/memory.h`).

mod code;
mod patched;
mod trial;

pub(super) use code::Places;
pub(super) use patched::Patched;

use super::{
    error::{Error, Result},
    maps::mappings,
    runtime::Runtime,
};
use std::fs;

/// Numbers and names of the kernel's devices of one kind, to which those of enclaves belong.
const DEVICES: &str = "/proc/misc";
/// Part of the names of those.
const ENCLAVES: &str = "sgx";

impl Runtime {
    /// Puts the copy into the vDSO, up to this runtime's end, or the tool's. Returns its address. `None` where this
    /// kernel does not end its faults, or something else may need what it replaces.
    pub fn install_vdso_copy(&mut self) -> Result<Option<u64>> {
        if !are_enclaves_absent() {
            return Ok(None);
        }
        let Some(proved) = trial::proved() else {
            return Ok(None);
        };
        let session = self.stop()?;
        let all = mappings(self.pid)?;
        // Others' changes there are not ours to undo, and what the others undo would be under our threads.
        let mut vdsos = all.iter().filter(|mapping| mapping.name == "[vdso]");
        let vdso = match (vdsos.next(), vdsos.next()) {
            (Some(vdso), None) if vdso.end - vdso.start == proved.image.len() as u64 => vdso,
            _ => return session.finish().map(|()| None),
        };
        if self.memory.read_vec(vdso.start, proved.image.len())? != proved.image {
            return session.finish().map(|()| None);
        }
        let places = proved.places.in_vdso_at(vdso.start);
        self.tracer.set_vdso(places, self.areas.layout);
        let is_written = match session.patch(&places.writes()) {
            // The process has sealed it.
            Err(Error::System { .. }) => false,
            written => written.and_then(|()| places.are_written(&self.memory))?,
        };
        session.finish()?;
        Ok(is_written.then_some(places.copy))
    }

    /// Says at which word helpers find the address of the copy, before they are written. It is 0 again where the copy is
    /// gone.
    pub fn set_vdso_caller(&self, word: u64) {
        self.tracer.set_vdso_caller(word);
    }
}

/// Returns whether no process of this machine can have an enclave.
fn are_enclaves_absent() -> bool {
    fs::read_to_string(DEVICES).is_ok_and(|devices| !devices.contains(ENCLAVES))
}
