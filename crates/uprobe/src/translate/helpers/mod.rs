//! The helpers that run in the target, and what they need to know.
//!
//! [`Blob`] has them as bytes: map lookup, update and delete (of arrays), the clocks, process and thread id, user and
//! group id, command, CPU, node, random numbers. The translator writes `bpf_loop`, `bpf_get_func_ip`,
//! `bpf_get_attach_cookie` and lookups of known arrays itself.
//!
//! Not here yet: hashes, ring buffers, reading memory (`bpf_probe_read_…`), `bpf_trace_printk`, `bpf_get_stack`. And
//! ids of processes and users are those of the target's namespaces.

mod blob;
mod vdso;

pub use blob::Blob;
pub use vdso::clock_gettime_offset;

use super::{ArrayPlace, HelperTable, helper_id};

/// What helpers get as an array: in the target, where [`super::MapPlace::handle`] says.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayDescriptor {
    values: u64,
    value_size: u32,
    stride: u32,
    entries: u32,
    reserved: u32,
}

impl ArrayDescriptor {
    /// The descriptor of an array.
    ///
    /// # Panics
    ///
    /// If a value has 4 GiB or more, which no kernel allows.
    pub fn new(array: ArrayPlace) -> Self {
        ArrayDescriptor {
            values: array.values,
            value_size: array.value_size,
            stride: u32::try_from(array.stride()).expect("values are smaller than 4 GiB"),
            entries: array.entries,
            reserved: 0,
        }
    }

    /// Its bytes, to be written to the target.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.values.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.value_size.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stride.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.entries.to_le_bytes());
        bytes
    }
}

/// What the helpers must know of the target and its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The address of `__vdso_clock_gettime` in the target ([`clock_gettime_offset`]). Without it, the clocks are system
    /// calls.
    pub clock_gettime: Option<u64>,
    /// Whether the CPU has the instruction RDPID. Without it, RDTSCP finds the CPU.
    pub has_rdpid: bool,
}

impl Environment {
    /// Its bytes, as `blob/helpers.c` has them.
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.clock_gettime.unwrap_or(0).to_le_bytes());
        bytes[8] = self.has_rdpid.into();
        bytes
    }
}
