//! A hash table that this process and the probed ones share.

#![allow(unsafe_code, reason = "calls the helpers' functions")]

use super::{
    error::Result, own_helpers::OwnHelpers, shared_memory::SharedMemory, store::values_in_table,
};
use crate::translate::helpers::{MapDescriptor, TableShape};
use std::{ffi::c_void, io, slice, sync::atomic::Ordering};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    /// The value. In a table of threads, the number of the entry among those that its node ever was.
    pub(super) value: Vec<u8>,
    /// The number of its node, from 0.
    pub(super) number: u32,
}

#[derive(Debug)]
pub(super) struct Table {
    memory: SharedMemory,
    shape: TableShape,
    /// Number of CPUs whose values are behind the nodes, 0 if they aren't.
    cpus: usize,
    /// For this process.
    descriptor: MapDescriptor,
    helpers: OwnHelpers,
}

impl Table {
    pub(super) fn create(shape: TableShape) -> Result<Self> {
        Table::with_cpus(shape, 0)
    }

    /// One with a value of each of so many CPUs.
    pub(super) fn with_cpus(shape: TableShape, cpus: usize) -> Result<Self> {
        let bytes = values_at(shape) + cpus * values_in_table(shape);
        let mut memory = SharedMemory::create(bytes, None)?;
        shape.clear(memory.before_it_is_shared());
        Ok(Table {
            descriptor: MapDescriptor::table(memory.address(), shape),
            cpus,
            memory,
            shape,
            helpers: OwnHelpers::get()?,
        })
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns what helpers get as the table, for its address in a process.
    pub(super) fn descriptor(&self, address: u64) -> MapDescriptor {
        let table = MapDescriptor::table(address, self.shape);
        if self.cpus == 0 {
            return table;
        }
        let values = address + values_at(self.shape) as u64;
        table.with_cpus(values, values_in_table(self.shape) as u64)
    }

    /// The values of an entry, one for each CPU.
    pub(super) fn values_of_cpus(&self, entry: &Entry) -> Vec<Vec<u8>> {
        let values = self.places(entry).map(|at| {
            let mut bytes = vec![0; self.shape.thread_stride()];
            self.memory.read(at, &mut bytes);
            // It may be of another entry that the node was: nothing was added to this one on that CPU.
            if bytes[..8] != entry.value {
                bytes.fill(0);
            }
            bytes.split_off(8)
        });
        values.collect()
    }

    /// Gives an entry a value for each CPU.
    pub(super) fn set_values_of_cpus(&self, entry: &Entry, values: &[u8]) {
        let each = self.shape.thread_stride() - 8;
        for (at, value) in self.places(entry).zip(values.chunks_exact(each)) {
            self.memory.write(at + 8, value);
            self.memory.write(at, &entry.value);
        }
    }

    /// The places of an entry's values in the memory.
    fn places(&self, entry: &Entry) -> impl Iterator<Item = usize> {
        let first = values_at(self.shape) + entry.number as usize * self.shape.thread_stride();
        let step = values_in_table(self.shape);
        (0..self.cpus).map(move |cpu| first + cpu * step)
    }

    pub(super) fn shape(&self) -> TableShape {
        self.shape
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key).map(|entry| entry.value)
    }

    /// The entry of a key.
    pub(super) fn find(&self, key: &[u8]) -> Option<Entry> {
        self.check_key(key);
        // SAFETY: the descriptor is of memory that lives as long as `self`, and the key is as long as it says.
        let value = unsafe { (self.helpers.lookup)(&raw const self.descriptor, key.as_ptr()) };
        // SAFETY: the helper returned the address of a value in the table, or none.
        (!value.is_null()).then(|| unsafe { self.entry(key.to_vec(), value) })
    }

    /// Gives a key a value, by the kernel's flags.
    pub(super) fn set(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        self.check_key(key);
        // Values of threads and CPUs are written where they are, and not by this.
        if !self.shape.is_of_threads {
            let bytes = self.shape.value_size as usize;
            assert_eq!(value.len(), bytes, "a value's bytes");
        }
        let (key, value) = (key.as_ptr(), value.as_ptr());
        // SAFETY: as in `get`; the value is as long as the descriptor says.
        answer(unsafe { (self.helpers.update)(&raw const self.descriptor, key, value, flags) })
    }

    /// Removes a key. Whether it was there.
    pub(super) fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check_key(key);
        // SAFETY: as in `get`.
        let answered =
            answer(unsafe { (self.helpers.delete)(&raw const self.descriptor, key.as_ptr()) });
        match answered {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All entries. Some that come or go meanwhile may be missing, or there twice.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut all = Collected {
            table: self,
            entries: Vec::new(),
        };
        // SAFETY: as in `get`; the callback gets `all` back as its last argument, while it lives.
        unsafe {
            (self.helpers.for_each)(
                &raw const self.descriptor,
                collect,
                (&raw mut all).cast::<c_void>(),
                0,
            );
        }
        all.entries
    }

    /// Returns whether an update waited in vain for another process's lock since the last question.
    pub(super) fn take_stuck(&self) -> bool {
        let stuck = self.memory.number(TableShape::STUCK);
        stuck.swap(0, Ordering::Relaxed) > 0
    }

    /// Returns the buckets that are locked, and the locks.
    pub(super) fn locks(&self) -> Vec<(usize, u32)> {
        let all = self.shape.locks();
        let held = all.map(|at| (at, self.memory.half(at).load(Ordering::Acquire)));
        held.filter(|&(_, lock)| lock != 0).collect()
    }

    /// Releases a lock, if it is still the same.
    pub(super) fn release(&self, bucket: usize, lock: u32) {
        let at = self.memory.half(bucket);
        let _ = at.compare_exchange(lock, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn check_key(&self, key: &[u8]) {
        assert_eq!(key.len(), self.shape.key_size as usize, "a key's bytes");
    }

    /// # Safety
    ///
    /// The address is that of a value of this table.
    unsafe fn entry(&self, key: Vec<u8>, at: *const u8) -> Entry {
        let offset = at as usize - self.memory.address() as usize;
        Entry {
            key,
            // SAFETY: the caller's.
            value: unsafe { copy_of(at, self.shape.value_in_node() as usize) },
            number: self.shape.number(offset),
        }
    }
}

/// The offset of the first CPU's values.
fn values_at(shape: TableShape) -> usize {
    shape.bytes().next_multiple_of(64)
}

struct Collected<'a> {
    table: &'a Table,
    entries: Vec<Entry>,
}

/// # Safety
///
/// `all` is a [`Collected`] of the table whose entry this is.
unsafe extern "C" fn collect(
    _map: *const MapDescriptor,
    key: *const u8,
    value: *const u8,
    all: *mut c_void,
) -> i64 {
    // SAFETY: the caller's.
    let all = unsafe { &mut *all.cast::<Collected<'_>>() };
    // SAFETY: the helper passes the addresses of a key and of its value.
    let entry = unsafe {
        let key = copy_of(key, all.table.shape.key_size as usize);
        all.table.entry(key, value)
    };
    all.entries.push(entry);
    0
}

/// # Safety
///
/// So many bytes can be read there.
unsafe fn copy_of(at: *const u8, bytes: usize) -> Vec<u8> {
    // SAFETY: the caller's. Others may write the bytes meanwhile, which are copied at once.
    unsafe { slice::from_raw_parts(at, bytes) }.to_vec()
}

/// A helper's answer: 0, or an error's negative number.
fn answer(answer: i64) -> io::Result<()> {
    match i32::try_from(-answer) {
        Ok(0) => Ok(()),
        Ok(error) => Err(io::Error::from_raw_os_error(error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64;

    use super::*;

    const ENTRIES: u32 = 16;
    const ANY: u64 = 0;

    fn table(is_lru: bool) -> Table {
        let shape = TableShape {
            key_size: 4,
            value_size: 8,
            entries: ENTRIES,
            is_lru,
            is_of_threads: false,
        };
        Table::create(shape).expect("memory can be had")
    }

    fn set(table: &Table, key: u32, value: u64) -> Option<i32> {
        let set = table.set(&key.to_ne_bytes(), &value.to_ne_bytes(), ANY);
        set.err()
            .map(|error| error.raw_os_error().expect("a number"))
    }

    fn delete(table: &Table, key: u32) -> bool {
        table.delete(&key.to_ne_bytes()).expect("it is not locked")
    }

    #[test]
    fn each_node_can_be_used_by_each_key() {
        for is_lru in [false, true] {
            let table = table(is_lru);
            for round in 0..8 {
                let keys = || (0..ENTRIES).map(|key| round * 1000 + key);
                assert!(keys().all(|key| set(&table, key, 1).is_none()), "{round}");
                assert_eq!(table.entries().len(), ENTRIES as usize, "{round}");
                if !is_lru {
                    assert_eq!(set(&table, 999_999, 1), Some(libc::E2BIG));
                }
                assert!(keys().all(|key| delete(&table, key)), "{round}");
                assert!(table.entries().is_empty(), "{round}");
            }
        }
    }

    #[test]
    fn a_full_table_says_so_and_no_other_does() {
        for seed in 0..200 {
            let (table, mut model) = (table(false), BTreeMap::new());
            let mut random = Pcg64::seed_from_u64(seed);
            for value in 0..500 {
                let key = random.random_range(0..64);
                if random.random_bool(0.5) {
                    let is_full = model.len() == ENTRIES as usize && !model.contains_key(&key);
                    let expected = is_full.then_some(libc::E2BIG);
                    assert_eq!(set(&table, key, value), expected, "{seed}, {value}");
                    if !is_full {
                        model.insert(key, value);
                    }
                } else {
                    let was_there = model.remove(&key).is_some();
                    assert_eq!(delete(&table, key), was_there, "{seed}, {value}");
                }
            }
            let mut entries: Vec<_> = table.entries();
            entries.sort_by_key(|entry| entry.key.clone());
            let mut expected: Vec<_> = model.into_iter().collect();
            expected.sort_by_key(|(key, _)| key.to_ne_bytes());
            let words = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            for (entry, (key, value)) in entries.iter().zip(&expected) {
                assert_eq!(entry.key, key.to_ne_bytes());
                assert_eq!(words(&entry.value), *value);
            }
            assert_eq!(entries.len(), expected.len());
        }
    }

    struct Shared(Table);

    // SAFETY: the helpers change a table as programs of several threads do.
    unsafe impl Sync for Shared {}

    #[test]
    fn no_node_is_lost_or_given_twice_between_threads() {
        let table = Shared(table(false));
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let table = &table;
                scope.spawn(move || {
                    let Shared(table) = table;
                    for round in 0..20_000_u32 {
                        // More keys than nodes in all: now and then it is full.
                        let keys = (0..5).map(|key| thread * 1000 + (round * 7 + key * 13) % 50);
                        let there: Vec<_> = keys
                            .filter(|&key| set(table, key, u64::from(key)).is_none())
                            .collect();
                        for key in there {
                            // A chain that keeps changing is given up.
                            if let Some(value) = table.get(&key.to_ne_bytes()) {
                                assert_eq!(value, u64::from(key).to_ne_bytes());
                            }
                            // A bucket whose holder has no CPU is given up.
                            while table.delete(&key.to_ne_bytes()).is_err() {}
                        }
                    }
                });
            }
        });
        let Shared(table) = table;
        assert!(table.entries().is_empty());
        let filled = (0..ENTRIES).all(|key| set(&table, key, 1).is_none());
        assert!(filled, "{} entries", table.entries().len());
        assert_eq!(set(&table, 100, 1), Some(libc::E2BIG));
    }
}
