//! The helpers, as code of this process: the tool changes tables by the same functions as the programs.

#![allow(
    unsafe_code,
    reason = "calls machine code that was compiled for the target"
)]

use super::{
    environment,
    error::{Error, Result},
};
use crate::translate::helpers::{Blob, MapDescriptor};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::{ffi::c_void, ptr, sync::OnceLock};

/// The kernel's ids.
const LOOKUP: u32 = 1;
const UPDATE: u32 = 2;
const DELETE: u32 = 3;
const FOR_EACH: u32 = 164;

type Lookup = unsafe extern "C" fn(*const MapDescriptor, *const u8) -> *const u8;
type Update = unsafe extern "C" fn(*const MapDescriptor, *const u8, *const u8, u64) -> i64;
type Delete = unsafe extern "C" fn(*const MapDescriptor, *const u8) -> i64;
type Callback =
    unsafe extern "C" fn(*const MapDescriptor, *const u8, *const u8, *mut c_void) -> i64;
#[cfg(test)]
pub(super) type RunInTurn =
    unsafe extern "C" fn(*mut u8, unsafe extern "C" fn(*const u8) -> u64, *mut u8) -> u64;
type ForEach = unsafe extern "C" fn(*const MapDescriptor, Callback, *mut c_void, u64) -> i64;

/// Functions of the helpers. Each takes a descriptor of memory that is mapped here, and keys and values of its sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnHelpers {
    pub(super) lookup: Lookup,
    pub(super) update: Update,
    pub(super) delete: Delete,
    pub(super) for_each: ForEach,
    #[cfg(test)]
    pub(super) run_in_turn: RunInTurn,
}

impl OwnHelpers {
    /// The helpers of this process, made once.
    pub(super) fn get() -> Result<Self> {
        static MADE: OnceLock<OwnHelpers> = OnceLock::new();
        if let Some(made) = MADE.get() {
            return Ok(*made);
        }
        let made = OwnHelpers::make()?;
        Ok(*MADE.get_or_init(|| made))
    }

    fn make() -> Result<Self> {
        let failed = |error| Error::system("memory for the helpers", error);
        let environment = environment::for_this_process();
        let length = Blob::at(0, environment).bytes.len();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let address = unsafe { mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE) };
        let address = address.map_err(failed)?;
        let blob = Blob::at(address as u64, environment);
        let access = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: the mapping is as long, and nobody else's. It stays: its functions are used to the process's end.
        let made = unsafe {
            ptr::copy_nonoverlapping(blob.bytes.as_ptr(), address.cast(), length);
            mprotect(address, length, access)
        };
        if let Err(error) = made {
            // SAFETY: the mapping made above, which nobody uses.
            let _ = unsafe { munmap(address, length) };
            return Err(failed(error));
        }
        let at = |id| {
            let address = blob.helpers.address(id).expect("the blob has it");
            ptr::with_exposed_provenance::<c_void>(address as usize)
        };
        // SAFETY: these are the functions' types in `blob/update.h`.
        unsafe {
            Ok(OwnHelpers {
                lookup: std::mem::transmute::<*const c_void, Lookup>(at(LOOKUP)),
                update: std::mem::transmute::<*const c_void, Update>(at(UPDATE)),
                delete: std::mem::transmute::<*const c_void, Delete>(at(DELETE)),
                for_each: std::mem::transmute::<*const c_void, ForEach>(at(FOR_EACH)),
                #[cfg(test)]
                run_in_turn: std::mem::transmute::<*const c_void, RunInTurn>(
                    ptr::with_exposed_provenance(blob.run_in_turn as usize),
                ),
            })
        }
    }
}
