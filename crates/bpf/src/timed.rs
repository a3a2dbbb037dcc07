//! Opens any object of `bpf/` whose programs time themselves (`TIMED_PROGRAM`). An experiment chooses programs,
//! maps and variables by name, and needs no separate loader.
//!
//! ```no_run
//! # fn main() -> bpfcost_bpf::Result<()> {
//! use bpfcost_bpf::{timed::OpenObject, timing::{Loop, Request}};
//!
//! let mut open = OpenObject::open("ladder", Loop::probe()?)?;
//! open.time("ladder_10")?;
//! let mut ladder = open.load()?;
//! let request = Request { ops: 1000, resets: 1, cpus: &[0], after_tick: false };
//! let seen = ladder.batch("ladder_10", &request, &[vec![0; 64]])?;
//! let product = ladder.variable("product_so_far")?;
//! # Ok(())
//! # }
//! ```

use std::{cell::Cell, ptr::NonNull, rc::Rc};

use libbpf_rs::{
    AsRawLibbpf as _, Btf, Map, MapCore, MapFlags, MapType, Object, ProgramMut, RingBuffer,
    RingBufferBuilder,
    libbpf_sys::{BPF_F_ZERO_SEED, bpf_object},
};

use crate::{
    error::{Result, lacks, no_area},
    object::{NamedObject, OpenNamed, load_failed},
    run::{self, TestRun},
    timing::{self, Loop, Observation, Request},
    unwind::{RuleTable, Unwinder},
};

/// An object that is not loaded yet: it loads no program and makes no map but those that were asked for.
#[derive(Debug)]
pub struct OpenObject {
    name: &'static str,
    looping: Loop,
    object: OpenNamed,
}

/// Differences of a map from its definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct MapOverrides {
    /// The most entries that it can have; pages of an arena, bytes of a ring buffer.
    pub max_entries: Option<u32>,
    /// The size of a value.
    pub value_bytes: Option<u32>,
    /// True for a hash that is the same in every load.
    pub zero_seed: bool,
}

impl OpenObject {
    /// Opens `bpf/NAME.bpf.c`. Its timed programs will loop as `looping` says.
    pub fn open(name: &'static str, looping: Loop) -> Result<Self> {
        OpenObject::from_open(OpenNamed::open(name)?, name, looping)
    }

    /// Opens the compiled object of an outside program that includes `timing.bpf.h`, by a name for errors.
    pub fn from_bytes(name: &'static str, bytes: &[u8], looping: Loop) -> Result<Self> {
        OpenObject::from_open(OpenNamed::from_bytes(name, bytes)?, name, looping)
    }

    fn from_open(mut object: OpenNamed, name: &'static str, looping: Loop) -> Result<Self> {
        for mut map in object.object().maps_mut() {
            // Sections are maps too, with a dot in their names.
            if !map.name().to_string_lossy().contains('.') {
                map.set_autocreate(false)
                    .map_err(|source| load_failed(name, source))?;
            }
        }
        Ok(OpenObject {
            name,
            looping,
            object,
        })
    }

    /// Has a timed program loaded (`TIMED_PROGRAM`).
    pub fn time(&mut self, program: &str) -> Result<()> {
        self.with(&timed_name(program, self.looping))
    }

    /// Has a program loaded, by its exact name.
    pub fn with(&mut self, program: &str) -> Result<()> {
        self.object.with(program)
    }

    /// Has a map made, in this shape.
    pub fn map(&mut self, map: &str, shape: MapOverrides) -> Result<()> {
        self.object.change_map(map, |found| {
            let flags = found.map_flags() | if shape.zero_seed { BPF_F_ZERO_SEED } else { 0 };
            found.set_autocreate(true)?;
            found.set_map_flags(flags)?;
            if let Some(entries) = shape.max_entries {
                found.set_max_entries(entries)?;
            }
            if let Some(bytes) = shape.value_bytes {
                found.set_value_size(bytes)?;
            }
            Ok(())
        })
    }

    /// Has a map of maps made, of maps like `inner`.
    pub(crate) fn map_of_maps(&mut self, map: &str, inner: &impl MapCore) -> Result<()> {
        self.map(map, MapOverrides::default())?;
        self.object
            .change_map(map, |map| map.set_inner_map_fd(inner.as_fd()))
    }

    /// Puts a map that is there already in the place of one.
    pub(crate) fn reuse(&mut self, map: &str, made: &impl MapCore) -> Result<()> {
        self.map(map, MapOverrides::default())?;
        self.object
            .change_map(map, |map| map.reuse_fd(made.as_fd()))
    }

    /// Has the maps of `unwind.bpf.h` made, with room for these rules.
    pub fn unwind(&mut self, rules: &RuleTable) -> Result<()> {
        for map in Unwinder::MAPS {
            self.map(map, MapOverrides::default())?;
        }
        Unwinder::size(self.object.object(), rules)
    }

    /// Gives a variable its first value: a constant (`const volatile`) has it for good, so that the
    /// verifier knows it.
    pub fn set(&mut self, variable: &str, value: u64) -> Result<()> {
        self.object.set(variable, value)
    }

    /// Loads what was asked for.
    pub fn load(self) -> Result<TimedObject> {
        let OpenObject {
            name,
            looping,
            object,
        } = self;
        let object = object.load()?;
        if object.globals.get("timing_ops").is_err() {
            return Err(no_area(name));
        }
        let records = Records::from_object(object.object());
        Ok(TimedObject {
            name,
            looping,
            records: records.map_err(|source| load_failed(name, source))?,
            object,
        })
    }

    /// Returns the object's types.
    pub(crate) fn btf(&self) -> Result<Btf<'_>> {
        self.object.types()
    }

    pub(crate) fn libbpf(&self) -> NonNull<bpf_object> {
        self.object.libbpf()
    }
}

/// A loaded object. Dropping it frees everything.
#[derive(Debug)]
pub struct TimedObject {
    name: &'static str,
    looping: Loop,
    records: Option<Records>,
    object: NamedObject,
}

impl TimedObject {
    /// Times a batch of a program on each CPU of the request, `packets[i]` on `cpus[i]`.
    pub fn batch(
        &mut self,
        program: &str,
        request: &Request<'_>,
        packets: &[Vec<u8>],
    ) -> Result<Vec<Observation>> {
        let program = self.object.runnable(&timed_name(program, self.looping))?;
        self.batch_of(&program, request, packets)
    }

    /// Times a batch of a program that is not the object's own, but uses its variables.
    pub(crate) fn batch_of(
        &mut self,
        program: &run::SharedProgram,
        request: &Request<'_>,
        packets: &[Vec<u8>],
    ) -> Result<Vec<Observation>> {
        timing::batch(program, &mut self.object.globals, request, packets)
    }

    /// The same on one CPU, in windows of at most so many operations.
    pub(crate) fn windows_of(
        &mut self,
        program: &run::SharedProgram,
        request: &Request<'_>,
        packet: &[u8],
        window: u64,
    ) -> Result<Observation> {
        timing::batch_in_windows(program, &mut self.object.globals, request, packet, window)
    }

    pub(crate) fn libbpf(&self) -> NonNull<bpf_object> {
        self.object.object().as_libbpf_object()
    }

    /// Has a batch run by an event of the calling thread, to which a program is attached; `samples` of one CPU alone.
    pub(crate) fn batch_by(
        &mut self,
        request: &Request<'_>,
        event: impl FnOnce() -> Result<()>,
    ) -> Result<Observation> {
        timing::batch_by(&mut self.object.globals, request, event)
    }

    /// A program of its exact name.
    pub(crate) fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        self.object.program(name)
    }

    /// A timed program, to be attached.
    pub(crate) fn timed_program(&self, program: &str) -> Result<ProgramMut<'_>> {
        self.object.program(&timed_name(program, self.looping))
    }

    /// Fills the maps of `unwind.bpf.h`.
    pub(crate) fn unwinder(&self, rules: &RuleTable) -> Result<Unwinder> {
        Unwinder::fill(self.object.object(), rules)
    }

    /// Runs a program once, on a packet, or on none where it is empty.
    pub fn run(&mut self, program: &str, cpu: u32, packet: &[u8]) -> Result<TestRun> {
        run::on_cpu(&self.object.runnable(program)?, cpu, packet)
    }

    /// A global variable of at most 8 bytes.
    pub fn variable(&self, name: &str) -> Result<u64> {
        self.object.globals.get(name)
    }

    /// The bytes of a global variable.
    pub(crate) fn bytes(&self, name: &str) -> Result<&[u8]> {
        self.object.globals.bytes(name)
    }

    /// Writes the first bytes of a global variable.
    pub(crate) fn set_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.object.globals.set_bytes(name, bytes)
    }

    /// Writes one.
    pub fn set_variable(&mut self, name: &str, value: u64) -> Result<()> {
        self.object.globals.set(name, value)
    }

    /// Members of `NAME[INDEX]`, of a global array of structures.
    pub fn members<const N: usize>(
        &self,
        name: &str,
        index: u32,
        members: [&str; N],
    ) -> Result<[u64; N]> {
        let mut values = [0; N];
        for (value, member) in values.iter_mut().zip(members) {
            *value = self.object.globals.member(name, index as usize, member)?;
        }
        Ok(values)
    }

    /// Writes some of them.
    pub fn set_members(&mut self, name: &str, index: u32, members: &[(&str, u64)]) -> Result<()> {
        members.iter().try_for_each(|(member, value)| {
            self.object
                .globals
                .set_member(name, index as usize, member, *value)
        })
    }

    /// Returns the number of keys of a map, counted by user space one by one.
    pub fn entries(&self, map: &str) -> Result<u64> {
        Ok(self.map(map)?.keys().count() as u64)
    }

    /// The value of a key.
    pub(crate) fn map_value(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.map(map)?.lookup(key, MapFlags::ANY);
        value.map_err(|source| load_failed(self.name, source))
    }

    /// All keys and values.
    pub(crate) fn map_entries(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let entry = |key: Vec<u8>| Ok(self.map_value(map, &key)?.map(|value| (key, value)));
        let keys: Vec<Vec<u8>> = self.map(map)?.keys().collect();
        let entries = keys.into_iter().filter_map(|key| entry(key).transpose());
        entries.collect()
    }

    pub(crate) fn map(&self, name: &str) -> Result<Map<'_>> {
        self.object.map(name)
    }

    /// Takes all records out of the object's ring buffers; returns how many, and the sum of their first words.
    pub fn take_records(&self) -> Result<(u64, u64)> {
        let records = self
            .records
            .as_ref()
            .ok_or_else(|| lacks(self.name, "ring buffer"))?;
        records
            .take()
            .map_err(|source| load_failed(self.name, source))
    }

    /// Memory that the kernel accounts for its maps, in bytes.
    pub fn kernel_bytes(&self) -> u64 {
        self.object.kernel_bytes()
    }
}

/// The reader of an object's ring buffers. Made once: made anew for each batch, it leaves work behind
/// that interrupts the next one.
#[derive(Debug)]
struct Records {
    rings: RingBuffer<'static>,
    /// Records so far, and the sum of their first words.
    taken: Rc<Cell<(u64, u64)>>,
}

impl Records {
    fn from_object(object: &Object) -> libbpf_rs::Result<Option<Self>> {
        let taken = Rc::new(Cell::new((0, 0u64)));
        let mut builder = RingBufferBuilder::new();
        let buffers: Vec<_> = object
            .maps()
            .filter(|map| map.map_type() == MapType::RingBuf && map.autocreate())
            .collect();
        if buffers.is_empty() {
            return Ok(None);
        }
        for map in &buffers {
            let taken = Rc::clone(&taken);
            builder.add(map, move |record| {
                let word = record
                    .first_chunk()
                    .map_or(0, |word| u64::from_ne_bytes(*word));
                let (count, sum) = taken.get();
                taken.set((count + 1, sum.wrapping_add(word)));
                0
            })?;
        }
        let rings = builder.build()?;
        Ok(Some(Records { rings, taken }))
    }

    fn take(&self) -> libbpf_rs::Result<(u64, u64)> {
        self.rings.consume()?;
        Ok(self.taken.take())
    }
}

fn timed_name(program: &str, looping: Loop) -> String {
    format!("{program}{}", looping.suffix())
}
