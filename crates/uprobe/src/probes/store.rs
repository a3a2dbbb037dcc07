//! A map's memory: that of all processes, and that of each.

use super::{
    error::{Error, Result},
    ring::{self, Ring},
    shared_memory::SharedMemory,
    table::Table,
    turns::Turns,
};
use crate::{
    object::{LoadedMap, LoadedObject, LoadedProgram, Pages},
    process::Shared,
    translate::helpers::{STACK_HEAD, TableShape},
};
use libbpf_rs::MapType;

/// The memory of all maps.
#[derive(Debug)]
pub(super) struct Stores {
    /// In the order of the object's maps; none where a map's type has no form in user space.
    pub(super) all: Vec<Option<Store>>,
    /// Who has the values of CPUs; none where what the kernel has per CPU is per thread.
    pub(super) turns: Option<Turns>,
}

impl Stores {
    /// The memory of maps, without values of CPUs.
    pub(super) fn create(maps: &[LoadedMap]) -> Result<Self> {
        let mut stores = Stores {
            all: Vec::new(),
            turns: None,
        };
        maps.iter().try_for_each(|map| stores.add(map))?;
        Ok(stores)
    }

    /// Makes the memory of one more map.
    pub(super) fn add(&mut self, map: &LoadedMap) -> Result<()> {
        let cpus = self.turns.as_ref().map(Turns::cpus);
        self.all.push(Store::create(map, cpus)?);
        Ok(())
    }

    /// The tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.all.iter().flatten().filter_map(|store| match store {
            Store::Table(table) | Store::ThreadTable(table) | Store::CpuTable(table) => Some(table),
            _ => None,
        })
    }

    /// Returns whether a program uses values of CPUs.
    pub(super) fn are_of_cpus_in(&self, object: &LoadedObject, program: &LoadedProgram) -> bool {
        let mut maps = object.maps().iter().zip(&self.all);
        maps.any(|(map, store)| {
            matches!(store, Some(Store::Cpus(_) | Store::CpuTable(_))) && program.uses(map)
        })
    }
}

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
    /// Arrays, one for each CPU.
    Cpus(SharedMemory),
    /// A hash table with a value of each CPU.
    CpuTable(Table),
    /// Nothing: each process has its own ring.
    Ring,
    /// Nothing: a program has another address in each process.
    Programs,
}

impl Store {
    /// `None` where the type has no form in user space.
    fn create(map: &LoadedMap, cpus: Option<usize>) -> Result<Option<Self>> {
        let shape = |is_lru, is_of_threads| TableShape {
            key_size: map.key_size,
            value_size: map.value_size,
            entries: map.entries,
            is_lru,
            is_of_threads,
        };
        if let (Some(cpus), MapType::PercpuHash | MapType::LruPercpuHash) = (cpus, map.kind) {
            let shape = shape(map.kind == MapType::LruPercpuHash, true);
            return Ok(Some(Store::CpuTable(Table::with_cpus(shape, cpus)?)));
        }
        if let (Some(cpus), MapType::PercpuArray) = (cpus, map.kind) {
            let values = SharedMemory::create(cpus * values_in_array(map), None)?;
            return Ok(Some(Store::Cpus(values)));
        }
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

/// Bytes of the values that a thread, or a CPU, has of a table.
pub(super) fn values_in_table(shape: TableShape) -> usize {
    shape.thread_stride() * shape.entries as usize
}

/// Bytes of the values that a CPU has of an array.
pub(super) fn values_in_array(map: &LoadedMap) -> usize {
    map.stride() * map.entries as usize
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
