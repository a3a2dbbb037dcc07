//! Plain values: types shared with BPF that are nothing but bytes.

#![allow(unsafe_code)]

use std::{mem, slice};

/// A type without padding or pointers, for which every bit pattern is a value.
///
/// # Safety
/// Implement it only for such types.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers have no padding, and every pattern is a value.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

// SAFETY: an array has nothing between its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of a value.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    bytes_of_slice(slice::from_ref(value))
}

/// The bytes of many values.
pub(crate) fn bytes_of_slice<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` has no padding, so every byte is initialised; the length is the slice's own.
    unsafe { slice::from_raw_parts(values.as_ptr().cast(), mem::size_of_val(values)) }
}

/// The value in the first bytes of `bytes`; `None` where there are too few.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < mem::size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, any pattern is a value, and the read may be unaligned.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
