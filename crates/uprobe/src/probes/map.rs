//! A map, for the tool.

use super::{
    error::{Error, Result},
    probes::Probes,
    shared_memory::SharedMemory,
    store::{Store, values_in_array, wrong},
    table::{Entry, Table},
};
use crate::{
    object::{Arena, LoadedMap, Pages},
    translate::{ArrayPlace, helpers::STACK_HEAD},
};
use std::{io, os::fd::AsRawFd as _};

/// A map of an object whose programs run in user space. Keys and values are bytes, as long as the map's are.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    pub(super) probes: &'a Probes,
    pub(super) map: &'a LoadedMap,
    pub(super) store: Option<&'a Store>,
}

impl Probes {
    /// A map of the object.
    pub fn map(&self, name: &str) -> Result<Map<'_>> {
        let (index, map) = self.find(name)?;
        Ok(Map {
            probes: self,
            map,
            store: self.stores.all[index].as_ref(),
        })
    }
}

impl Probes {
    /// The map of a number in the kernel.
    pub fn map_with_id(&self, id: u32) -> Option<Map<'_>> {
        let mut all = self.object.maps().iter().zip(&self.stores.all);
        let (map, store) = all.find(|(map, _)| map.id == id)?;
        Some(Map {
            probes: self,
            map,
            store: store.as_ref(),
        })
    }
}

impl<'a> Map<'a> {
    /// The kernel's map: its type, sizes and file descriptor.
    pub fn loaded(&self) -> &'a LoadedMap {
        self.map
    }

    /// Bytes of a value, or of all CPUs' values of a key.
    pub fn value_bytes(&self) -> usize {
        match self.cpus() {
            0 => self.map.value_size as usize,
            cpus => cpus * self.map.stride(),
        }
    }

    /// Number of CPUs that it has a value for each of, 0 if it hasn't.
    fn cpus(&self) -> usize {
        match (self.store, &self.probes.stores.turns) {
            (Some(Store::Cpus(_) | Store::CpuTable(_)), Some(turns)) => turns.cpus(),
            _ => 0,
        }
    }

    /// Returns whether its values are stacks.
    pub fn has_stacks(&self) -> bool {
        matches!(self.store, Some(Store::Stacks(_)))
    }

    /// The keys of a table, the numbers of stacks, or the indices of values of CPUs. Some that come or go meanwhile may be
    /// missing, or there twice.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>> {
        let numbers = match self.store {
            Some(Store::Table(table) | Store::ThreadTable(table) | Store::CpuTable(table)) => {
                let entries = table.entries().into_iter();
                return Ok(entries.map(|entry| entry.key).collect());
            }
            Some(Store::Cpus(_)) => 0..self.map.entries,
            Some(Store::Stacks(_)) => 0..self.map.entries.next_power_of_two(),
            _ => return Err(wrong(self.map, "keys")),
        };
        let mut keys = Vec::new();
        for number in numbers {
            if !self.has_stacks() || self.stack(number)?.is_some() {
                keys.push(number.to_ne_bytes().to_vec());
            }
        }
        Ok(keys)
    }

    /// Gives a key of a table a value, as the kernel does by flags: always (0), or an error if the key is there
    /// (`BPF_NOEXIST`, 1), or is not (`BPF_EXIST`, 2).
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<()> {
        if let Some(Store::Cpus(memory)) = self.store {
            return self.update_cpus(memory, key, value, flags);
        }
        let (Some(Store::Table(table)) | Some(Store::CpuTable(table))) = self.store else {
            return Err(wrong(self.map, "value of a key"));
        };
        assert_eq!(value.len(), self.value_bytes(), "a value's bytes");
        let written = self.unless_stuck(|| table.set(key, value, flags));
        written.map_err(|source| Error::Map {
            map: self.map.name.clone(),
            what: "written",
            source,
        })?;
        if let (Some(Store::CpuTable(_)), Some(entry)) = (self.store, table.find(key)) {
            table.set_values_of_cpus(&entry, value);
        }
        Ok(())
    }

    /// The value of a key of an array or a table; `None` where there is none.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.store {
            Some(Store::Table(table)) => Ok(table.get(key)),
            Some(Store::CpuTable(table)) => {
                let entry = table.find(key);
                Ok(entry.map(|entry| table.values_of_cpus(&entry).concat()))
            }
            Some(Store::Cpus(memory)) => {
                let mut value = vec![0; self.value_bytes()];
                let places = self.places_of_cpus(key);
                for (at, into) in places.zip(value.chunks_exact_mut(self.map.stride())) {
                    memory.read(at, into);
                }
                let is_there = index(key) < self.map.entries;
                Ok(is_there.then_some(value))
            }
            Some(Store::Array(pages)) => {
                let index = index(key);
                let bytes = self.map.value_size as usize;
                let is_there = index < self.map.entries;
                Ok(is_there.then(|| pages.read(index as usize * self.map.stride(), bytes)))
            }
            _ => Err(wrong(self.map, "value of a key")),
        }
    }

    /// Gives a key of an array or a table a value.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.store {
            Some(Store::Table(_) | Store::CpuTable(_)) => self.update(key, value, 0),
            Some(Store::Cpus(_)) => self.update(key, value, 0),
            Some(Store::Array(pages)) => {
                let index = index(key);
                self.check_index(index, "written")?;
                if self.map.is_read_only {
                    return Err(self.failed("written", libc::EPERM));
                }
                assert_eq!(value.len(), self.map.value_size as usize, "a value's bytes");
                pages.write(index as usize * self.map.stride(), value);
                Ok(())
            }
            _ => Err(wrong(self.map, "value of a key")),
        }
    }

    /// Gives an index of an array of CPUs a value for each.
    fn update_cpus(
        &self,
        memory: &SharedMemory,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<()> {
        assert_eq!(value.len(), self.value_bytes(), "a value's bytes");
        let error = match flags {
            0 | 2 if index(key) < self.map.entries => None,
            0 | 2 => Some(libc::E2BIG),
            1 => Some(libc::EEXIST),
            _ => Some(libc::EINVAL),
        };
        if let Some(error) = error {
            return Err(Error::Map {
                map: self.map.name.clone(),
                what: "written",
                source: io::Error::from_raw_os_error(error),
            });
        }
        let places = self.places_of_cpus(key);
        for (at, from) in places.zip(value.chunks_exact(self.map.stride())) {
            memory.write(at, from);
        }
        Ok(())
    }

    /// The places of the values of each CPU at an index of an array.
    fn places_of_cpus(&self, key: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let step = values_in_array(self.map);
        let first = index(key) as usize * self.map.stride();
        let cpus = if index(key) < self.map.entries {
            self.cpus()
        } else {
            0
        };
        (0..cpus).map(move |cpu| first + cpu * step)
    }

    /// The addresses of a stack by the number that `bpf_get_stackid` returned, the innermost first; `None` where there
    /// is none.
    pub fn stack(&self, number: u32) -> Result<Option<Vec<u64>>> {
        let Some(Store::Stacks(memory)) = self.store else {
            return Err(wrong(self.map, "stacks"));
        };
        if number >= self.map.entries.next_power_of_two() {
            return Ok(None);
        }
        let mut bytes = vec![0; STACK_HEAD + self.map.value_size as usize];
        memory.read(number as usize * bytes.len(), &mut bytes);
        let word = |eight: &[u8]| u64::from_ne_bytes(eight.try_into().expect("8 bytes"));
        let (head, addresses) = bytes.split_at(STACK_HEAD);
        // Its hash, then its depth.
        let frames = (word(head) >> 32) as usize;
        let addresses = addresses.chunks_exact(8).take(frames).map(word);
        Ok((frames > 0).then(|| addresses.collect()))
    }

    /// Removes a key of a table, or a stack by its number. Whether it was there.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        match self.store {
            Some(Store::Stacks(memory)) => {
                let number = index(key);
                let was_there = self.stack(number)?.is_some();
                if was_there {
                    let bytes = STACK_HEAD + self.map.value_size as usize;
                    memory.clear(number as usize * bytes, bytes);
                }
                Ok(was_there)
            }
            Some(Store::Table(table) | Store::ThreadTable(table) | Store::CpuTable(table)) => {
                let deleted = self.unless_stuck(|| table.delete(key));
                deleted.map_err(|source| Error::Map {
                    map: self.map.name.clone(),
                    what: "changed",
                    source,
                })
            }
            _ => Err(wrong(self.map, "keys")),
        }
    }

    /// An error where an array has no such index.
    fn check_index(&self, index: u32, what: &'static str) -> Result<()> {
        if index < self.map.entries {
            return Ok(());
        }
        Err(self.failed(what, libc::E2BIG))
    }

    fn failed(&self, what: &'static str, code: i32) -> Error {
        Error::Map {
            map: self.map.name.clone(),
            what,
            source: io::Error::from_raw_os_error(code),
        }
    }

    /// Changes a table, once more where it waited in vain for a process that has ended.
    fn unless_stuck<T>(&self, change: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match change() {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                self.probes.release_stuck_locks();
                change()
            }
            changed => changed,
        }
    }

    /// A table's entries. Some that come or go meanwhile may be missing, or there twice.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self.store {
            Some(Store::Table(table)) => {
                let entries = table.entries().into_iter();
                Ok(entries.map(|entry| (entry.key, entry.value)).collect())
            }
            _ => Err(wrong(self.map, "keys")),
        }
    }

    /// The values at an index of a map that the kernel has per CPU: one of each thread area of each process. Their sum
    /// is what a sum over CPUs is in the kernel.
    pub fn of_threads(&self, index: u32) -> Result<Vec<Vec<u8>>> {
        let (fd, array) = self.thread_array()?;
        self.check_index(index, "read")?;
        let at = u64::from(index) * array.stride();
        let targets = self.probes.targets.values();
        Ok(targets
            .flat_map(|target| target.thread_bytes(fd, at as usize, array.value_size as usize))
            .collect())
    }

    /// The values of a key of a table that the kernel has per CPU: one of each thread area that has one. `None` where the
    /// table has no such key.
    pub fn of_threads_by_key(&self, key: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let table = self.thread_table()?;
        Ok(table.find(key).map(|entry| self.values(table, &entry)))
    }

    /// The entries of such a table. Some that come or go meanwhile may be missing, or there twice.
    #[expect(clippy::type_complexity, reason = "keys, and values of each")]
    pub fn entries_of_threads(&self) -> Result<Vec<(Vec<u8>, Vec<Vec<u8>>)>> {
        let table = self.thread_table()?;
        let entries = table.entries().into_iter().map(|entry| {
            let values = self.values(table, &entry);
            (entry.key, values)
        });
        Ok(entries.collect())
    }

    fn thread_table(&self) -> Result<&Table> {
        match self.store {
            Some(Store::ThreadTable(table)) => Ok(table),
            _ => Err(wrong(self.map, "keys with values of threads")),
        }
    }

    /// The threads' values of an entry. Where a thread's is of another entry of the node, it is zero.
    fn values(&self, table: &Table, entry: &Entry) -> Vec<Vec<u8>> {
        let shape = table.shape();
        let (at, bytes) = (
            entry.number as usize * shape.thread_stride(),
            8 + shape.value_size as usize,
        );
        let fd = self.map.fd().as_raw_fd();
        let targets = self.probes.targets.values();
        let values = targets.flat_map(|target| target.thread_bytes(fd, at, bytes));
        let is_of_entry = values.filter(|bytes| bytes[..8] == entry.value);
        is_of_entry.map(|bytes| bytes[8..].to_vec()).collect()
    }

    /// Gives each thread area of the processes that have the map a value. What a thread writes at that moment may win.
    pub fn set_of_threads(&self, index: u32, value: &[u8]) -> Result<()> {
        let (fd, array) = self.thread_array()?;
        self.check_index(index, "written")?;
        assert_eq!(value.len(), self.map.value_size as usize, "a value's bytes");
        for target in self.probes.targets.values() {
            target.set_thread_values(fd, array, index, value);
        }
        Ok(())
    }

    fn thread_array(&self) -> Result<(i32, ArrayPlace)> {
        let Some(Store::Threads) = self.store else {
            return Err(wrong(self.map, "values of threads"));
        };
        let array = ArrayPlace {
            values: 0,
            value_size: self.map.value_size,
            entries: self.map.entries,
        };
        Ok((self.map.fd().as_raw_fd(), array))
    }

    /// Returns how many records the rings had no room for.
    pub fn dropped(&self) -> Result<u64> {
        let Some(Store::Ring) = self.store else {
            return Err(wrong(self.map, "records"));
        };
        let fd = self.map.fd().as_raw_fd();
        let targets = self.probes.targets.values();
        Ok(targets.map(|target| target.dropped(fd)).sum())
    }
}

/// Memory of arenas. A page that nothing has used yet is made by reading it, as by any user of an arena.
impl Map<'_> {
    /// Addresses of an arena, the same in all processes.
    pub fn arena(&self) -> Result<Arena> {
        let arena = self.map.arena;
        arena.ok_or_else(|| wrong(self.map, "address of an arena"))
    }

    /// Bytes of an arena at an address, as pointers in it are.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let (pages, offset) = self.arena_bytes(address, bytes, "read")?;
        Ok(pages.read(offset, bytes))
    }

    /// Writes bytes of an arena at an address.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let (pages, offset) = self.arena_bytes(address, bytes.len(), "written")?;
        pages.write(offset, bytes);
        Ok(())
    }

    /// The pages, and where in them the bytes are, which are there then.
    fn arena_bytes(
        &self,
        address: u64,
        bytes: usize,
        what: &'static str,
    ) -> Result<(&Pages, usize)> {
        let arena = self.arena()?;
        let Some(Store::Arena(pages)) = self.store else {
            return Err(wrong(self.map, "address of an arena"));
        };
        let failed = |source| Error::Map {
            map: self.map.name.clone(),
            what,
            source,
        };
        let offset = address
            .checked_sub(arena.start)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| {
                let end = offset.checked_add(bytes);
                end.is_some_and(|end| end <= pages.length())
            });
        let offset = offset.ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EFAULT)))?;
        pages.touch(offset, bytes).map_err(failed)?;
        Ok((pages, offset))
    }
}

fn index(key: &[u8]) -> u32 {
    u32::from_ne_bytes(key.try_into().expect("an array's key has 4 bytes"))
}
