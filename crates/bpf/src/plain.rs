//! Plain values: types shared with BPF that are nothing but bytes.

#![allow(unsafe_code)]

use std::{mem, slice};

use crate::skel::{
    counter::types::counter_counts,
    l7::types::{l7_count, l7_event},
    probe,
    sslsniff::types::{sslsniff_counts, sslsniff_head},
    stack::types::{unwind_node, unwind_rule, unwind_state},
    stack_counter::types::{stack_counter_counts, stack_counter_event},
    stack_tracer::types::stack_tracer_counts,
    unwind_truth::types::{truth_counts, truth_stacks},
    xdp_lb::types,
};

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

macro_rules! plain {
    ($($name:ty: $size:expr),* $(,)?) => {
        $(
            // SAFETY: integers and arrays of them; the headers name their padding, and the size
            // that is checked here is the sum of the fields' sizes, so there is no other.
            unsafe impl Plain for $name {}
            const _: () = assert!(mem::size_of::<$name>() == $size);
        )*
    };
}

plain! {
    types::flow_key: 40,
    types::lru_entry: 16,
    types::vip_key: 20,
    types::vip: 8,
    types::real: 20,
    types::control: 12,
    types::traffic: 16,
    types::flood: 16,
    types::replayed: 8 + 136,
    counter_counts: 24,
    probe::types::bss: 48,
    l7_count: 16,
    l7_event: 48 + 512,
    sslsniff_counts: 56,
    sslsniff_head: 48,
    [u32; 2]: 8,
    [u32; 4]: 16,
    [u64; 2]: 16,
    [u64; 3]: 24,
    unwind_rule: 8,
    unwind_node: 64,
    unwind_state: 72,
    stack_counter_counts: 32,
    stack_counter_event: 48,
    stack_tracer_counts: 32,
    truth_counts: 72,
    truth_stacks: 8 + 8 + 128 * 8 + 128 * 8,
}

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
