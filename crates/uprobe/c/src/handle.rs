//! An opened object, as C holds it.

#![allow(
    unsafe_code,
    reason = "pointers from C are read, and functions exported by their names"
)]

use super::{
    argument::{bytes, check, null, optional, text, values},
    failure::{Failure, Result, answer},
    places::Attachment,
};
use bpfcost_uprobe::{
    object::{Choice, LoadedObject},
    probes::Probes,
};
use std::{
    collections::BTreeMap,
    ffi::{c_char, c_int, c_void},
    fs,
    sync::{Mutex, MutexGuard, TryLockError},
};

/// The object, behind a lock that nothing waits for: a second call on it at the same time is an error.
pub(crate) struct Handle(Mutex<Opened>);

pub(crate) struct Opened {
    pub(crate) probes: Probes,
    /// The attachments, under the numbers that C knows them by.
    pub(crate) attachments: BTreeMap<u64, Attachment>,
    /// The number of the next one.
    pub(crate) next: u64,
}

/// A handle may be used in any thread.
const _: fn() = {
    fn is_send<T: Send>() {}
    is_send::<Opened>
};

/// `struct bpfcost_uprobe_constant`.
#[repr(C)]
struct Constant {
    name: *const c_char,
    value: *const c_void,
    size: usize,
}

/// `struct bpfcost_uprobe_options`.
#[repr(C)]
struct Options {
    programs: *const *const c_char,
    program_count: usize,
    constants: *const Constant,
    constant_count: usize,
}

impl Handle {
    fn lock(&self) -> Result<MutexGuard<'_, Opened>> {
        self.0.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Failure::new(
                libc::EBUSY,
                "another call on this handle has not returned\n  it runs in another thread, or called back",
            ),
            TryLockError::Poisoned(_) => Failure::new(
                libc::ENOTRECOVERABLE,
                "an earlier call on this handle failed by a bug of the library\n  close the handle",
            ),
        })
    }
}

impl Opened {
    /// Detaches what is attached. Returns the first failure.
    fn detach_all(&mut self) -> Result<()> {
        let mut first = Ok(());
        while let Some((_, attachment)) = self.attachments.pop_first() {
            let detached = self.probes.detach(attachment.attached);
            first = first.and(detached.map(drop).map_err(Failure::from));
        }
        first
    }
}

/// The opened object of a handle, locked.
///
/// # Safety
///
/// The pointer is null, or one that [`bpfcost_uprobe_open`] gave and that was not closed.
pub(crate) unsafe fn locked<'a>(handle: *const Handle) -> Result<MutexGuard<'a, Opened>> {
    check(handle, 1, "the handle")?;
    // SAFETY: as the caller promises.
    unsafe { &*handle }.lock()
}

/// Opens an object, and writes its handle.
///
/// # Safety
///
/// The pointers are null or as the header says.
unsafe fn open(
    name: &str,
    object: &[u8],
    options: *const Options,
    into: *mut *mut Handle,
) -> Result<()> {
    check(into, 1, "the place for the handle")?;
    let mut programs = Vec::new();
    let mut constants = Vec::new();
    if !options.is_null() {
        check(options, 1, "the options")?;
        // SAFETY: as the caller promises.
        let options = unsafe { &*options };
        // SAFETY: as the caller promises.
        let names = unsafe { values(options.programs, options.program_count, "programs") }?;
        for &name in names {
            // SAFETY: as the caller promises.
            programs.push(unsafe { text(name, "the name of a program") }?);
        }
        // SAFETY: as the caller promises.
        let all = unsafe { values(options.constants, options.constant_count, "constants") }?;
        for one in all {
            // SAFETY: as the caller promises.
            let name = unsafe { text(one.name, "the name of a constant") }?;
            // SAFETY: as the caller promises.
            let value = unsafe { bytes(one.value, one.size, "the value of a constant") }?;
            constants.push((name, value));
        }
    }
    let choice = Choice {
        programs: &programs,
        constants: &constants,
    };
    let opened = Opened {
        probes: Probes::new(LoadedObject::from_bytes(name, object, &choice)?)?,
        attachments: BTreeMap::new(),
        next: 1,
    };
    let handle = Box::into_raw(Box::new(Handle(Mutex::new(opened))));
    // SAFETY: it is not null, and leads to memory for a pointer, as the caller promises.
    unsafe { into.write(handle) };
    Ok(())
}

/// Loads an object file.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_open(
    path: *const c_char,
    options: *const Options,
    handle: *mut *mut Handle,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header.
        let path = unsafe { text(path, "the path") }?;
        let object = fs::read(path).map_err(|error| Failure::system(path, &error))?;
        // SAFETY: the caller keeps to the header.
        unsafe { open(path, &object, options, handle) }
    })
}

/// Loads an object from memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_open_bytes(
    name: *const c_char,
    object: *const c_void,
    size: usize,
    options: *const Options,
    handle: *mut *mut Handle,
) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header.
        let name = unsafe { optional(name, "the name") }?.unwrap_or("the object");
        // SAFETY: the caller keeps to the header.
        let object = unsafe { bytes(object, size, "the object") }?;
        if object.is_empty() {
            return Err(null("the object"));
        }
        // SAFETY: the caller keeps to the header.
        unsafe { open(name, object, options, handle) }
    })
}

/// Detaches what is attached, and frees the handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_close(handle: *mut Handle) -> c_int {
    answer(|| {
        if handle.is_null() {
            return Ok(());
        }
        check(handle, 1, "the handle")?;
        // SAFETY: the caller keeps to the header.
        let detached = match unsafe { &*handle }.0.try_lock() {
            Ok(mut opened) => opened.detach_all(),
            Err(TryLockError::Poisoned(error)) => error.into_inner().detach_all(),
            // SAFETY: the caller keeps to the header. It is locked, which is the error.
            Err(TryLockError::WouldBlock) => return unsafe { locked(handle) }.map(drop),
        };
        // SAFETY: `open` made it, no call is in it, and the caller uses it no more.
        drop(unsafe { Box::from_raw(handle) });
        detached
    })
}

/// Has forked children run the programs too.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_follow_children(handle: *mut Handle) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header.
        unsafe { locked(handle) }?.probes.follow_children();
        Ok(())
    })
}

/// Frees what is kept of processes that ended.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_forget_ended(handle: *mut Handle) -> c_int {
    answer(|| {
        // SAFETY: the caller keeps to the header.
        unsafe { locked(handle) }?.probes.forget_ended();
        Ok(())
    })
}
