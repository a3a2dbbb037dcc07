//! The helpers that run in the target, and what they need to know.
//!
//! [`Blob`] has them as bytes, compiled from `blob/`: maps (arrays, those of threads, tables, stacks), ring buffers and perf buffers,
//! reading memory, stacks by frame pointers, the clocks, process and thread id, user and group id, command, CPU, node,
//! random numbers, text by formats. The translator writes tail calls, `bpf_loop`, `bpf_get_func_ip`,
//! `bpf_get_attach_cookie` and lookups of known arrays itself.
//!
//! # Where they differ from the kernel's
//!
//! - Ids of processes and users are those of the target's namespaces.
//! - Maps that the kernel has per CPU are per thread here: an addition needs an atomic only where the thread's signal
//!   handlers are probed too.
//! - `bpf_probe_read_kernel` reads user space: there, the context lies.
//! - An update of a table's entry overwrites the value where it is. A table with the least recently used entries dropped
//!   (LRU) drops the one that came first in some bucket.
//! - Stacks are those of user space only, by frame pointers.
//! - `bpf_trace_printk` writes to a ring ([`super::MapLayout::trace_ring`]); `%p` and `%pK` show addresses, not hashes.
//!
//! Not here yet: timers, dynamic pointers. `bpf_map_lookup_percpu_elem` has no meaning here: values are those of threads.

mod blob;
mod map;
mod vdso;

pub use blob::Blob;
pub use map::{MapDescriptor, STACK_HEAD, TableShape};
pub use vdso::clock_gettime_offset;

use super::{HelperTable, helper_id};

/// Facts about the target and its machine for the helpers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The address of `__vdso_clock_gettime` in the target ([`clock_gettime_offset`]). Without it, the clocks are system
    /// calls.
    pub clock_gettime: Option<u64>,
    /// True if the CPU has the instruction RDPID. Without it, RDTSCP finds the CPU.
    pub has_rdpid: bool,
    /// True if the CPU's transactions commit. Without them, a guarded copy reads what may not be there,
    /// or the kernel does.
    pub has_rtm: bool,
    /// True if threads have areas, which the GS base points to. Without them, threads ask the kernel who they are, and
    /// tables are locked as the tool's own.
    pub has_areas: bool,
    /// Device and inode of the target's PID namespace.
    pub namespace: (u64, u64),
    /// The address of a copy whose faults the kernel ends, in the target's vDSO. Without it, transactions read, or the guard.
    pub vdso_copy: Option<u64>,
    /// True if a filter may not let the system calls of a read pass. What the copy in the vDSO can't read is an
    /// error then, and so is every read where it is gone.
    pub denies_reads: bool,
    /// True if a thread may let others run (`sched_yield`), while all values of CPUs are taken.
    pub yields: bool,
    /// A copy whose faults end it, and the signal handler that ends them, where the process has them.
    pub guard: Option<(u64, u64)>,
    /// The offset from a thread's FS base of the word that holds its number. Without it, threads ask the kernel each time.
    pub thread_word: Option<i64>,
    /// The control page of the first area, and the number of areas.
    pub areas: (u64, u64),
    /// The number of the process among those that share its tables, from 1, below [`Environment::MAX_PROCESSES`].
    pub process: u32,
}

impl Environment {
    /// The bits of a holder's number: the process's number is above them, in 31 bits.
    pub const HOLDER_BITS: u32 = 15;
    /// The number that no process reaches. The last one is part of the tool's own number as a holder of locks.
    pub const MAX_PROCESSES: u32 = (1 << (31 - Self::HOLDER_BITS)) - 1;

    const WORDS: usize = 15;
    /// The word with the address of the copy in the vDSO.
    const VDSO_COPY: usize = 12;

    /// Returns the bytes, as `blob/types.h` has them.
    fn to_bytes(self) -> [u8; 8 * Self::WORDS] {
        let (copy, handler) = self.guard.unwrap_or_default();
        let words = [
            self.clock_gettime.unwrap_or(0),
            self.has_rdpid.into(),
            self.has_rtm.into(),
            self.has_areas.into(),
            self.namespace.0,
            self.namespace.1,
            copy,
            handler,
            self.thread_word.unwrap_or(0).cast_unsigned(),
            self.areas.0,
            self.areas.1,
            self.process.into(),
            self.vdso_copy.unwrap_or(0),
            self.denies_reads.into(),
            self.yields.into(),
        ];
        let mut bytes = [0; 8 * Self::WORDS];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}
