//! Values of maps by their keys.

#![allow(
    unsafe_code,
    reason = "pointers from C are read, and functions exported by their names"
)]

use super::{
    argument::{bytes, check, text, write, write_all},
    failure::{Failure, Result, answer},
    handle::{Handle, Opened, locked},
};
use bpfcost_uprobe::probes::Map;
use std::ffi::{c_char, c_int, c_void};

/// `struct bpfcost_uprobe_map_info`.
#[repr(C)]
struct Info {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    read_only: u32,
    reserved: u32,
}

impl Opened {
    /// The map that C names.
    ///
    /// # Safety
    ///
    /// The name is as the header says.
    pub(crate) unsafe fn map(&self, name: *const c_char) -> Result<Map<'_>> {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "the name of a map") }?;
        Ok(self.probes.map(name)?)
    }
}

/// Does something with the map that C names.
///
/// # Safety
///
/// Handle and name are as the header says.
pub(crate) unsafe fn on_map<T>(
    handle: *mut Handle,
    name: *const c_char,
    work: impl FnOnce(&Map<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: as the caller promises.
    let opened = unsafe { locked(handle) }?;
    // SAFETY: as the caller promises.
    work(&unsafe { opened.map(name) }?)
}

/// A key, which has to be as long as the map's are.
///
/// # Safety
///
/// The pointer is as the header says.
pub(crate) unsafe fn key<'a>(map: &Map<'_>, from: *const c_void, size: usize) -> Result<&'a [u8]> {
    check_size(map, "key", map.loaded().key_size, size)?;
    // SAFETY: as the caller promises.
    unsafe { bytes(from, size, "the key") }
}

/// An error where the caller's keys or values are not as long as the map's.
fn check_size(map: &Map<'_>, what: &str, expected: u32, size: usize) -> Result<()> {
    if size == expected as usize {
        return Ok(());
    }
    let name = &map.loaded().name;
    Err(Failure::argument(format!(
        "a {what} of the map {name} has {expected} bytes, not {size}"
    )))
}

fn no_key(map: &Map<'_>) -> Failure {
    let text = format!("the map {} has no such key", map.loaded().name);
    Failure::new(libc::ENOENT, text)
}

/// Writes a map's type and sizes.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_info(
    handle: *mut Handle,
    name: *const c_char,
    info: *mut Info,
) -> c_int {
    let work = |map: &Map<'_>| {
        let loaded = map.loaded();
        let known = Info {
            kind: loaded.kind as u32,
            key_size: loaded.key_size,
            value_size: loaded.value_size,
            max_entries: loaded.entries,
            read_only: loaded.is_read_only.into(),
            reserved: 0,
        };
        // SAFETY: the caller keeps to the header.
        unsafe { write(info, known, "the place for the map's sizes") }
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}

/// Copies the value of a key.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_get(
    handle: *mut Handle,
    name: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *mut c_void,
    value_size: usize,
) -> c_int {
    let work = |map: &Map<'_>| {
        // SAFETY: the caller keeps to the header.
        let key = unsafe { self::key(map, key, key_size) }?;
        check_size(map, "value", map.loaded().value_size, value_size)?;
        let found = map.get(key)?.ok_or_else(|| no_key(map))?;
        // SAFETY: the caller keeps to the header.
        unsafe { write_all(value.cast(), value_size, &found, "the place for the value") }
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}

/// Gives a key a value.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_set(
    handle: *mut Handle,
    name: *const c_char,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    let work = |map: &Map<'_>| {
        // SAFETY: the caller keeps to the header.
        let key = unsafe { self::key(map, key, key_size) }?;
        check_size(map, "value", map.loaded().value_size, value_size)?;
        // SAFETY: the caller keeps to the header.
        let value = unsafe { bytes(value, value_size, "the value") }?;
        Ok(map.set(key, value)?)
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}

/// Removes a key.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_delete(
    handle: *mut Handle,
    name: *const c_char,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    let work = |map: &Map<'_>| {
        // SAFETY: the caller keeps to the header.
        let key = unsafe { self::key(map, key, key_size) }?;
        let was_there = map.delete(key)?;
        was_there.then_some(()).ok_or_else(|| no_key(map))
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}

/// Gives all threads a value at an index.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_set_threads(
    handle: *mut Handle,
    name: *const c_char,
    index: u32,
    value: *const c_void,
    value_size: usize,
) -> c_int {
    let work = |map: &Map<'_>| {
        check_size(map, "value", map.loaded().value_size, value_size)?;
        // SAFETY: the caller keeps to the header.
        let value = unsafe { bytes(value, value_size, "the value") }?;
        Ok(map.set_of_threads(index, value)?)
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}

/// Copies the addresses of a stack, and writes how many there are.
#[unsafe(no_mangle)]
unsafe extern "C" fn bpfcost_uprobe_map_stack(
    handle: *mut Handle,
    name: *const c_char,
    number: u32,
    addresses: *mut u64,
    room: usize,
    count: *mut usize,
) -> c_int {
    let work = |map: &Map<'_>| {
        check(count, 1, "the place for the depth")?;
        let found = map.stack(number)?.ok_or_else(|| no_key(map))?;
        // SAFETY: the caller keeps to the header.
        unsafe { write_all(addresses, room, &found, "addresses") }?;
        // SAFETY: the caller keeps to the header.
        unsafe { write(count, found.len(), "the place for the depth") }
    };
    // SAFETY: the caller keeps to the header.
    answer(|| unsafe { on_map(handle, name, work) })
}
