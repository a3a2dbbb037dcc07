//! Addresses of a program's maps in the target.

use super::error::Result;

/// Addresses of a program's maps in the target process.
pub trait MapLayout {
    /// The place of the map that has this file descriptor in the loading process; [`super::Error::UnsupportedMap`]
    /// where the map has no form in user space.
    fn place(&self, fd: i32) -> Result<MapPlace>;

    /// The bytes of the map's only value, if nothing can change them: the map is frozen, and programs can't write it
    /// (`BPF_F_RDONLY_PROG`). Branches that they decide are not translated.
    fn constants(&self, fd: i32) -> Option<Vec<u8>> {
        let _ = fd;
        None
    }

    /// The address of the descriptor of the ring that `bpf_trace_printk` writes to; `None` where there is none.
    fn trace_ring(&self) -> Option<u64> {
        None
    }
}

/// Addresses of a map in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPlace {
    /// The value that a program passes to helpers as the map: the address of its descriptor in the target
    /// ([`super::helpers::MapDescriptor`] ).
    pub handle: u64,
    /// The values, if the map is an array: its lookups need no call.
    pub array: Option<ArrayPlace>,
    /// The memory, if the map is an arena.
    pub arena: Option<ArenaPlace>,
}

/// An arena in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaPlace {
    /// The address of the first page: the same in all processes, and in the kernel's pointers.
    pub start: u64,
    /// The bytes: whole pages, at most 4 GiB.
    pub bytes: u64,
    /// Address of a byte for each page, 0 at first, which becomes 1 once an access has met the page.
    pub pages: u64,
    /// True if pointers always keep their short form (`BPF_F_NO_USER_CONV`).
    pub keeps_short: bool,
}

/// The values of an array in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayPlace {
    /// The address of the first value.
    pub values: u64,
    /// The size of a value in bytes, as the map was made with.
    pub value_size: u32,
    /// The number of values.
    pub entries: u32,
}

impl ArrayPlace {
    /// The distance of two values in bytes: the kernel rounds their size up to 8.
    pub fn stride(&self) -> u64 {
        u64::from(self.value_size).next_multiple_of(8)
    }
}
