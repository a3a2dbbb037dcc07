//! A map's memory: that of all processes, and that of each.

use super::{
    error::{Error, Result},
    ring::{self, Ring},
    shared_memory::SharedMemory,
    table::Table,
};
use crate::{
    object::{LoadedMap, Pages},
    process::Shared,
    translate::helpers::{STACK_HEAD, TableShape},
};
use libbpf_rs::MapType;

/// Memory that all processes have in common.
#[derive(Debug)]
pub(super) enum Store {
    /// The kernel's own pages.
    Array(Pages),
    /// The kernel's own pages, at the same address everywhere.
    Arena(Pages),
    /// A hash table.
    Table(Table),
    /// A hash table with a value of each thread.
    ThreadTable(Table),
    /// Stacks, by the number that `bpf_get_stackid` returns.
    Stacks(SharedMemory),
    /// Nothing: each process's threads have their own.
    Threads,
    /// Nothing: each process has its own ring.
    Ring,
    /// Nothing: a program has another address in each process.
    Programs,
}

impl Store {
    /// `None` where the type has no form in user space.
    pub(super) fn create(map: &LoadedMap) -> Result<Option<Self>> {
        let shape = |is_lru, is_of_threads| TableShape {
            key_size: map.key_size,
            value_size: map.value_size,
            entries: map.entries,
            is_lru,
            is_of_threads,
        };
        Ok(Some(match map.kind {
            MapType::Array => Store::Array(map.pages()?),
            MapType::Arena => Store::Arena(map.pages()?),
            MapType::Hash => Store::Table(Table::create(shape(false, false))?),
            MapType::LruHash => Store::Table(Table::create(shape(true, false))?),
            MapType::PercpuHash => Store::ThreadTable(Table::create(shape(false, true))?),
            MapType::LruPercpuHash => Store::ThreadTable(Table::create(shape(true, true))?),
            MapType::PercpuArray => Store::Threads,
            MapType::RingBuf | MapType::PerfEventArray => Store::Ring,
            MapType::ProgArray => Store::Programs,
            MapType::StackTrace => {
                let stacks = map.entries.next_power_of_two() as usize;
                let bytes = stacks * (STACK_HEAD + map.value_size as usize);
                Store::Stacks(SharedMemory::create(bytes, None)?)
            }
            _ => return Ok(None),
        }))
    }
}

/// Returns how a ring is mapped into its process.
pub(super) fn share_ring(ring: &Ring) -> Shared<'_> {
    Shared {
        again_from: Some(ring::DATA as u64),
        ..share(ring.memory())
    }
}

/// Returns how memory is mapped into a process.
pub(super) fn share(memory: &SharedMemory) -> Shared<'_> {
    Shared {
        file: memory.file(),
        bytes: memory.bytes() as u64,
        is_read_only: false,
        again_from: None,
        at: None,
    }
}

/// The name of a type, as the specification of BPF has it.
pub(super) fn kind_name(kind: MapType) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// An error about what a map is not.
pub(super) fn wrong(map: &LoadedMap, what: &'static str) -> Error {
    Error::WrongMap {
        map: map.name.clone(),
        kind: kind_name(map.kind),
        what,
    }
}
