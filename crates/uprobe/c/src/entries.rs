//! All entries of a table, and the values of all threads, given to a function of the caller's: from a copy, so that it may
//! use the handle.

#![allow(
    unsafe_code,
    reason = "pointers from C are read, functions of C called, and functions exported by their names"
)]

use super::{
    argument::null,
    failure::{Failure, Result, answer},
    handle::Handle,
    maps::{key, on_map},
};
use bpfcost_uprobe::probes::Map;
use std::ffi::{c_char, c_int, c_void};

/// `bpfcost_uprobe_entry_fn`.
type EntryFn = unsafe extern "C" fn(
    context: *mut c_void,
    key: *const c_void,
    key_size: usize,
    values: *const c_void,
    value_size: usize,
    count: usize,
);

/// A key, and the values of it: one, or one of each thread, in a row.
struct Copied {
    key: Vec<u8>,
    values: Vec<u8>,
    count: usize,
}

impl Copied {
    fn from_threads(key: Vec<u8>, values: &[Vec<u8>]) -> Self {
        Copied {
            key,
            values: values.concat(),
            count: values.len(),
        }
    }
}

fn all_entries(map: &Map<'_>) -> Result<Vec<Copied>> {
    let plain = match map.entries() {
        Ok(plain) => plain,
        Err(error) => {
            let entries = map.entries_of_threads().map_err(|_| error)?.into_iter();
            let copied = entries.map(|(key, values)| Copied::from_threads(key, &values));
            return Ok(copied.collect());
        }
    };
    let copied = plain.into_iter().map(|(key, values)| Copied {
        key,
        values,
        count: 1,
    });
    Ok(copied.collect())
}

fn values_of_threads(map: &Map<'_>, key: &[u8]) -> Result<Copied> {
    let values = match map.of_threads_by_key(key) {
        Ok(values) => {
            values.ok_or_else(|| Failure::new(libc::ENOENT, "the map has no such key"))?
        }
        Err(error) => {
            // An array's key is an index.
            let index = key.try_into().map(u32::from_ne_bytes);
            map.of_threads(index.map_err(|_| error)?)?
        }
    };
    Ok(Copied::from_threads(key.to_vec(), &values))
}

/// Calls a function of the caller's for each entry.
///
/// # Safety
///
/// The function is as the header says, and the context what it wants.
unsafe fn give(entries: &[Copied], value_size: usize, take: EntryFn, context: *mut c_void) {
    for entry in entries {
        let (key, values) = (entry.key.as_ptr().cast(), entry.values.as_ptr().cast());
        // SAFETY: as the caller promises; the bytes live through the call.
        unsafe {
            take(
                context,
                key,
                entry.key.len(),
                values,
                value_size,
                entry.count,
            );
        }
    }
}

/// Gives each entry of a table to a function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_each(
    handle: *mut Handle,
    name: *const c_char,
    take: Option<EntryFn>,
    context: *mut c_void,
) -> c_int {
    answer(|| {
        let take = take.ok_or_else(|| null("the function"))?;
        let copy = |map: &Map<'_>| Ok((all_entries(map)?, map.loaded().value_size as usize));
        // SAFETY: the caller keeps to the header, here and below.
        let (entries, value_size) = unsafe { on_map(handle, name, copy) }?;
        // SAFETY: the same.
        unsafe { give(&entries, value_size, take, context) };
        Ok(())
    })
}

/// Gives the threads' values of a key to a function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_threads(
    handle: *mut Handle,
    name: *const c_char,
    key: *const c_void,
    key_size: usize,
    take: Option<EntryFn>,
    context: *mut c_void,
) -> c_int {
    answer(|| {
        let take = take.ok_or_else(|| null("the function"))?;
        let copy = |map: &Map<'_>| {
            // SAFETY: the caller keeps to the header, here and below.
            let key = unsafe { self::key(map, key, key_size) }?;
            let values = values_of_threads(map, key)?;
            Ok((values, map.loaded().value_size as usize))
        };
        // SAFETY: the same.
        let (entry, value_size) = unsafe { on_map(handle, name, copy) }?;
        // SAFETY: the same.
        unsafe { give(&[entry], value_size, take, context) };
        Ok(())
    })
}
