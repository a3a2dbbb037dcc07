//! Pointers that C passes, as Rust has what they lead to. The header says what has to be there; null is an error, but
//! where the header allows it.

#![allow(unsafe_code, reason = "pointers from C are read")]

use super::failure::{Failure, Result};
use std::{
    ffi::{CStr, c_char, c_void},
    slice,
};

/// A text.
///
/// # Safety
///
/// The pointer is null, or leads to a text that ends with a zero and lives through the call.
pub(crate) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str> {
    if from.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(from) };
    let not_utf8 = |_| Failure::argument(format!("{what} is not UTF-8"));
    text.to_str().map_err(not_utf8)
}

/// A text that may be left out.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn optional<'a>(from: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    unsafe { text(from, what) }.map(Some)
}

/// Values in a row.
///
/// # Safety
///
/// The pointer is null, or leads to so many values, which live and stay the same through the call.
pub(crate) unsafe fn values<'a, T>(from: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(from, count, what)?;
    // SAFETY: as the caller promises; aligned, and not longer than memory can be.
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// Bytes.
///
/// # Safety
///
/// As [`values`].
pub(crate) unsafe fn bytes<'a>(from: *const c_void, count: usize, what: &str) -> Result<&'a [u8]> {
    // SAFETY: as the caller promises.
    unsafe { values(from.cast(), count, what) }
}

/// An answer, written to where the caller wants it.
///
/// # Safety
///
/// The pointer is null, or leads to memory for the value.
pub(crate) unsafe fn write<T>(into: *mut T, value: T, what: &str) -> Result<()> {
    check(into, 1, what)?;
    // SAFETY: as the caller promises; aligned.
    unsafe { into.write(value) };
    Ok(())
}

/// As many values as there is room for.
///
/// # Safety
///
/// The pointer is null, or leads to memory for `room` values.
pub(crate) unsafe fn write_all<T: Copy>(
    into: *mut T,
    room: usize,
    all: &[T],
    what: &str,
) -> Result<()> {
    let count = all.len().min(room);
    if count == 0 {
        return Ok(());
    }
    check(into, room, what)?;
    // SAFETY: as the caller promises; aligned. `all` is this library's own.
    unsafe { into.copy_from_nonoverlapping(all.as_ptr(), count) };
    Ok(())
}

/// An error where a pointer can't lead to so many values.
pub(crate) fn check<T>(pointer: *const T, count: usize, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(null(what));
    }
    if !pointer.is_aligned() {
        return Err(Failure::argument(format!("{what} is not aligned")));
    }
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Failure::argument(format!("{what} has too many values"))),
    }
}

pub(crate) fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}
