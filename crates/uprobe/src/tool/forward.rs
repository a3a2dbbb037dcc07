//! Records of user space, written to a tool's own ring buffer or perf buffers by a program in the kernel.

use std::os::fd::AsFd as _;

use libbpf_rs::{MapCore as _, MapType, Object, ObjectBuilder, ProgramInput};

use super::error::{Error, Result};
use crate::object::{LoadedMap, Pages};

/// The compiled `bpf/forward.bpf.c`.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forward.o"));

/// Bytes of the records of a batch, and the most of one record.
const BATCH: usize = 1 << 18;
const RECORD: usize = 1 << 15;
/// Places in the batch: the number of records, those that the kernel refused, the records.
const RECORDS: usize = 0;
const REFUSED: usize = 4;
const DATA: usize = 8;

/// The way of records to one map of the tool.
#[derive(Debug)]
pub(super) struct Forwarder {
    map: String,
    object: Object,
    batch: Pages,
    /// Bytes and number of the records that wait.
    filled: usize,
    records: u32,
    /// Records that were too long for it.
    pub(super) too_long: u64,
}

impl Forwarder {
    /// One for a map with records.
    pub(super) fn new(map: &LoadedMap) -> Result<Self> {
        let failed = |source| Error::Forward {
            map: map.name.clone(),
            source,
        };
        let is_ring = map.kind == MapType::RingBuf;
        let mut opened = ObjectBuilder::default()
            .open_memory(OBJECT)
            .map_err(failed)?;
        let own = if is_ring { "ring" } else { "perf" };
        for mut one in opened.maps_mut() {
            if one.name() == own {
                one.reuse_fd(map.fd()).map_err(failed)?;
            }
            if one.name().to_string_lossy().ends_with(".rodata") {
                let value = one.initial_value_mut().expect("it has a constant");
                value[0] = is_ring.into();
            }
        }
        let object = opened.load().map_err(failed)?;
        let batch = object.maps().find(|one| one.name() == ".data.batch");
        let batch = batch
            .expect("bpf/forward.bpf.c has it")
            .as_fd()
            .try_clone_to_owned();
        let batch = batch.and_then(LoadedMap::from_fd);
        let batch = batch
            .map_err(Error::system("the array for records"))?
            .pages()?;
        Ok(Forwarder {
            map: map.name.clone(),
            object,
            batch,
            filled: 0,
            records: 0,
            too_long: 0,
        })
    }

    /// Takes a record, unless it is too long. It goes on its way with [`Self::flush`], or when there is no room for another.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<bool> {
        if record.len() >= RECORD {
            self.too_long += 1;
            return Ok(false);
        }
        let at = DATA + self.filled;
        self.batch.write(at, &(record.len() as u64).to_ne_bytes());
        self.batch.write(at + 8, record);
        self.filled += 8 + record.len().next_multiple_of(8);
        self.records += 1;
        if self.filled >= BATCH {
            self.flush()?;
        }
        Ok(true)
    }

    /// Has the kernel write what waits. A full buffer of the tool's loses records, as it does in the kernel.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        self.batch.write(RECORDS, &self.records.to_ne_bytes());
        let failed = |source| Error::Forward {
            map: self.map.clone(),
            source,
        };
        let program = self.object.progs_mut().next().expect("it has one program");
        program.test_run(ProgramInput::default()).map_err(failed)?;
        (self.filled, self.records) = (0, 0);
        Ok(())
    }

    /// Returns how many records the tool's buffers had no room for.
    pub(super) fn refused(&self) -> u64 {
        let bytes = self.batch.read(REFUSED, 4);
        u32::from_ne_bytes(bytes.try_into().expect("4 bytes")).into()
    }
}
