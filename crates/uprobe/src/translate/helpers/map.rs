//! Descriptors of maps for helpers, and the layout of their memory: `blob/map.h`, `blob/table.h`, `blob/stack.h`.

use super::super::ArrayPlace;

/// The kinds of `blob/map.h`.
const ARRAY: u32 = 0;
const THREAD_ARRAY: u32 = 1;
const TABLE: u32 = 2;
const LRU_TABLE: u32 = 3;
const RING: u32 = 4;
const STACKS: u32 = 5;
const PROGRAMS: u32 = 6;
const THREAD_TABLE: u32 = 7;
const LRU_THREAD_TABLE: u32 = 8;

/// The bytes before a table's buckets, those of a bucket, and those of a node before its key.
const TABLE_HEAD: usize = 64;
const BUCKET: usize = 16;
const NODE_HEAD: usize = 8;
/// The bytes of an entry of a map of stacks before its addresses.
pub const STACK_HEAD: usize = 8;
/// The bit that ends a chain, and the end of the list of free nodes.
const MARK: u32 = 1 << 31;
const FREE_END: u32 = u32::MAX;

/// Descriptor of a map for helpers: in the target, at [`super::super::MapPlace::handle`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapDescriptor {
    memory: u64,
    value_size: u32,
    stride: u32,
    entries: u32,
    kind: u32,
    key_size: u32,
    mask: u32,
    values: u64,
    cpu_bytes: u64,
}

impl MapDescriptor {
    /// The bytes of a descriptor.
    pub const BYTES: usize = 48;

    /// Offsets of the address of an array of programs' table, and of the number of its slots.
    pub(crate) const MEMORY_OFFSET: u32 = std::mem::offset_of!(MapDescriptor, memory) as u32;
    pub(crate) const ENTRIES_OFFSET: u32 = std::mem::offset_of!(MapDescriptor, entries) as u32;

    /// An array.
    ///
    /// # Panics
    ///
    /// If a value has 4 GiB or more, which no kernel allows.
    pub fn array(array: ArrayPlace) -> Self {
        MapDescriptor {
            memory: array.values,
            value_size: array.value_size,
            stride: u32::try_from(array.stride()).expect("values are smaller than 4 GiB"),
            entries: array.entries,
            kind: ARRAY,
            key_size: 4,
            mask: 0,
            values: 0,
            cpu_bytes: 0,
        }
    }

    /// An array of each thread, whose first value is so far from the thread's control page.
    pub fn thread_array(array: ArrayPlace) -> Self {
        MapDescriptor {
            kind: THREAD_ARRAY,
            values: array.values,
            ..MapDescriptor::array(array)
        }
    }

    /// An array of each CPU, whose first value of the first CPU is at an address. `cpu_bytes` are from one CPU's to the next.
    pub fn cpu_array(array: ArrayPlace, cpu_bytes: u64) -> Self {
        MapDescriptor {
            cpu_bytes,
            ..MapDescriptor::thread_array(array)
        }
    }

    /// A table at an address.
    pub fn table(memory: u64, shape: TableShape) -> Self {
        MapDescriptor {
            memory,
            value_size: shape.value_size,
            stride: shape.node() as u32,
            entries: shape.entries,
            kind: match (shape.is_of_threads, shape.is_lru) {
                (false, false) => TABLE,
                (false, true) => LRU_TABLE,
                (true, false) => THREAD_TABLE,
                (true, true) => LRU_THREAD_TABLE,
            },
            key_size: shape.key_size,
            mask: shape.buckets() - 1,
            values: 0,
            cpu_bytes: 0,
        }
    }

    /// A ring at an address, of so many bytes, a power of two.
    pub fn ring(memory: u64, bytes: u32) -> Self {
        MapDescriptor {
            memory,
            value_size: 0,
            stride: 0,
            entries: bytes,
            kind: RING,
            key_size: 0,
            mask: bytes - 1,
            values: 0,
            cpu_bytes: 0,
        }
    }

    /// A map of stacks at an address: as many as a power of two that is at least `entries`.
    pub fn stacks(memory: u64, value_size: u32, entries: u32) -> Self {
        MapDescriptor {
            memory,
            value_size,
            stride: STACK_HEAD as u32 + value_size,
            entries,
            kind: STACKS,
            key_size: 4,
            mask: entries.next_power_of_two() - 1,
            values: 0,
            cpu_bytes: 0,
        }
    }

    /// An array of programs: a table of so many addresses, each 0 or that of a program's [`super::super::MachineCode::tail_entry`].
    pub fn programs(memory: u64, entries: u32) -> Self {
        MapDescriptor {
            memory,
            value_size: 4,
            stride: 8,
            entries,
            kind: PROGRAMS,
            key_size: 4,
            mask: 0,
            values: 0,
            cpu_bytes: 0,
        }
    }

    /// The same table, whose values are so far from a thread's control page.
    #[must_use]
    pub fn with_values(self, values: u64) -> Self {
        MapDescriptor { values, ..self }
    }

    /// The same table, whose values are of CPUs: those of the first are at an address.
    #[must_use]
    pub fn with_cpus(self, values: u64, cpu_bytes: u64) -> Self {
        MapDescriptor {
            values,
            cpu_bytes,
            ..self
        }
    }

    /// Returns the bytes, to be written to the target.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.memory.to_le_bytes());
        let words = [
            self.value_size,
            self.stride,
            self.entries,
            self.kind,
            self.key_size,
            self.mask,
        ];
        bytes[32..40].copy_from_slice(&self.values.to_le_bytes());
        bytes[40..].copy_from_slice(&self.cpu_bytes.to_le_bytes());
        for (into, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The shape of a hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries.
    pub entries: u32,
    /// True if a full table drops an entry for a new one.
    pub is_lru: bool,
    /// True if each thread has its own values, in its memory.
    pub is_of_threads: bool,
}

impl TableShape {
    /// The offset of the number of updates that waited in vain for another process's lock.
    pub const STUCK: usize = 8;

    /// Returns the offset of each bucket's lock, 4 bytes.
    pub fn locks(&self) -> impl Iterator<Item = usize> + use<> {
        (TABLE_HEAD..self.nodes_at()).step_by(BUCKET)
    }

    fn buckets(&self) -> u32 {
        self.entries.next_power_of_two()
    }

    fn node(&self) -> usize {
        let whole = |bytes: u32| (bytes as usize).next_multiple_of(8);
        NODE_HEAD + whole(self.key_size) + whole(self.value_in_node())
    }

    /// Bytes of what a node has as its value: of a table of threads, the number of entries that it ever was.
    pub fn value_in_node(&self) -> u32 {
        if self.is_of_threads {
            8
        } else {
            self.value_size
        }
    }

    /// The number of a node, from 0, by how far what it has as its value is from the table's beginning.
    pub fn number(&self, value: usize) -> u32 {
        ((value - self.nodes_at()) / self.node()) as u32
    }

    /// Bytes of a thread's memory for one node: which entry the value is of, 8 bytes, and the value.
    pub fn thread_stride(&self) -> usize {
        8 + (self.value_size as usize).next_multiple_of(8)
    }

    fn nodes_at(&self) -> usize {
        TABLE_HEAD + self.buckets() as usize * BUCKET
    }

    /// The bytes of the whole table.
    pub fn bytes(&self) -> usize {
        self.nodes_at() + self.entries as usize * self.node()
    }

    /// Empties a table. Nobody may use it meanwhile.
    ///
    /// # Panics
    ///
    /// If the memory is smaller than the table.
    pub fn clear(&self, memory: &mut [u8]) {
        let (buckets, nodes) = memory[..self.bytes()].split_at_mut(self.nodes_at());
        buckets.fill(0);
        buckets[..8].copy_from_slice(&1_u64.to_le_bytes());
        for (number, bucket) in buckets[TABLE_HEAD..].chunks_exact_mut(BUCKET).enumerate() {
            bucket[4..8].copy_from_slice(&(MARK | number as u32).to_le_bytes());
        }
        for (index, node) in nodes.chunks_exact_mut(self.node()).enumerate() {
            let next = match index as u32 + 1 {
                last if last == self.entries => FREE_END,
                number => number + 1,
            };
            node[..4].copy_from_slice(&next.to_le_bytes());
        }
    }
}
