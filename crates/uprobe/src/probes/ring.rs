//! The reader's side of a ring: `blob/ring.h`.

use super::{
    error::{Error, Result},
    shared_memory::SharedMemory,
};
use crate::{object::LoadedMap, translate::helpers::MapDescriptor};
use libbpf_rs::MapType;
use std::sync::atomic::Ordering;

/// Offsets of a ring's numbers and data.
const CONSUMER: usize = 0;
const PRODUCER: usize = 4096;
const DROPPED: usize = 4096 + 8;
pub(super) const DATA: usize = 2 * 4096;
/// A record's head: its bytes, with two bits for those that are not finished, and those that are to be skipped.
const HEAD: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// Bytes of the ring that stands for an array of perf buffers, whose sizes are their reader's choice.
const PERF_BYTES: u32 = 1 << 20;

/// A ring of one process.
#[derive(Debug)]
pub(super) struct Ring {
    memory: SharedMemory,
    bytes: u32,
    /// Position up to which it was read. The process could overwrite the one in memory.
    position: u64,
    record: Vec<u8>,
}

impl Ring {
    /// The ring of a map with records.
    pub(super) fn for_map(map: &LoadedMap) -> Result<Self> {
        match map.kind {
            MapType::PerfEventArray => Ring::create(PERF_BYTES),
            _ => Ring::create(map.entries),
        }
    }

    /// A ring of so many bytes, a power of two and a multiple of a page.
    pub(super) fn create(bytes: u32) -> Result<Self> {
        let memory = SharedMemory::create(DATA + bytes as usize, Some(DATA))?;
        Ok(Ring {
            memory,
            bytes,
            position: 0,
            record: Vec::new(),
        })
    }

    pub(super) fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns what helpers get as the ring, for its address in a process.
    pub(super) fn descriptor(&self, address: u64) -> MapDescriptor {
        MapDescriptor::ring(address, self.bytes)
    }

    /// Records that there was no room for.
    pub(super) fn dropped(&self) -> u64 {
        self.memory.number(DROPPED).load(Ordering::Relaxed)
    }

    /// Reads the records that are finished, up to the first that is not, and to what was there at first: writers may be faster
    /// for ever. Of a process that ended (`skips`), what was
    /// not finished never will be, and is skipped.
    pub(super) fn consume(
        &mut self,
        skips: bool,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), NotARecord> {
        let producer = self.memory.number(PRODUCER).load(Ordering::Acquire);
        loop {
            let rest = producer.wrapping_sub(self.position);
            if rest == 0 {
                return Ok(());
            }
            let at = DATA + (self.position & u64::from(self.bytes - 1)) as usize;
            let head = self.memory.number(at).load(Ordering::Acquire) as u32;
            // Not begun, or not finished.
            if head == 0 || head & BUSY != 0 && !skips {
                return Ok(());
            }
            let bytes = (head & !(BUSY | DISCARDED)) as usize;
            let whole = (bytes + HEAD).next_multiple_of(8);
            if whole as u64 > rest || rest > self.bytes.into() {
                return Err(NotARecord);
            }
            if head & (BUSY | DISCARDED) == 0 {
                self.record.resize(bytes, 0);
                self.memory.read(at + HEAD, &mut self.record);
                take(&self.record);
            }
            self.memory.clear(at, whole);
            self.position += whole as u64;
            self.memory
                .number(CONSUMER)
                .store(self.position, Ordering::Release);
        }
    }
}

/// The ring's memory was overwritten.
#[derive(Debug)]
pub(super) struct NotARecord;

impl NotARecord {
    pub(super) fn in_ring(self, map: &str, pid: i32) -> Error {
        Error::Ring {
            map: map.to_owned(),
            pid,
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "writes as programs do")]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const BYTES: u32 = 4096;

    /// Writes a record of 8 bytes to a ring at an address.
    fn append(ring: usize) {
        let number = |offset: usize| {
            // SAFETY: a number of the ring, whose memory lives longer.
            unsafe { AtomicU64::from_ptr((ring + offset) as *mut u64) }
        };
        let position = number(PRODUCER).load(Ordering::Relaxed);
        let at = DATA + (position & u64::from(BYTES - 1)) as usize;
        number(at + HEAD).store(position, Ordering::Relaxed);
        number(at).store(8, Ordering::Release);
        number(PRODUCER).store(position + 16, Ordering::Release);
    }

    #[test]
    fn a_writer_that_is_always_faster_does_not_keep_the_reader() {
        let mut ring = Ring::create(BYTES).unwrap();
        let at = ring.memory().address() as usize;
        append(at);
        append(at);
        let mut taken = Vec::new();
        let mut take = |record: &[u8]| {
            append(at);
            taken.push(u64::from_ne_bytes(record.try_into().unwrap()));
            assert!(taken.len() < 100, "it goes on");
        };
        ring.consume(false, &mut take).unwrap();
        ring.consume(false, &mut take).unwrap();
        assert_eq!(taken, [0, 16, 32, 48]);
        assert_eq!(ring.dropped(), 0);
    }
}
