//! The maps that bodies write to. They are created once per epoch and shared by the programs of all attach types in the
//! kernel; those in user space share others. One program is attached at a time.

use std::{cell::Cell, os::fd::AsFd as _, rc::Rc};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType, RingBuffer, libbpf_sys as sys};

use super::{Attach, Body, user_programs::UserPrograms};
use crate::{
    Space,
    error::{Result, map_failed},
    maps,
    object::OpenNamed,
};

/// Bytes of an event (`struct probe_event`).
const EVENT_BYTES: usize = 64;
/// The kernel's header before each event in the buffer.
const HEADER_BYTES: usize = 8;
/// See `bpf/probe.h`.
const RING_BYTES: u32 = 8 << 20;
const STACK_DEPTH: u32 = 127;
pub(super) const ENTRIES: u32 = 1024;

/// Room for what a driver makes beside the timed events: frames come in sets of 64, with two sets around.
const SPARE_EVENTS: u64 = 256;

/// Byte that fills the per-CPU array before a program writes there: no process and no CPU has such a
/// number.
const UNWRITTEN: u8 = 0xff;

/// Maps of all bodies.
pub struct BodyMaps {
    last_pid: MapHandle,
    hits_by_pid: MapHandle,
    events: MapHandle,
    stacks: MapHandle,
    /// Reads `events`. Made once: to map a ring anew for each batch disturbs the next one.
    reader: RingBuffer<'static>,
    /// Events that it has read: by a process, and by the process or CPU of number 0.
    read: Rc<Cell<[u64; 2]>>,
    user: UserPrograms,
}

impl BodyMaps {
    /// Makes them. With `exact`, hashes have no seed, so that every load has the same buckets.
    pub fn make(exact: bool) -> Result<Self> {
        let seed = if exact { sys::BPF_F_ZERO_SEED } else { 0 };
        let make = |map, kind, [key, value, entries]: [u32; 3], flags| {
            let options = sys::bpf_map_create_opts {
                sz: size_of::<sys::bpf_map_create_opts>() as _,
                map_flags: flags,
                ..Default::default()
            };
            MapHandle::create(kind, Some(map), key, value, entries, &options)
                .map_err(map_failed(map, "making it"))
        };
        let events = make("events", MapType::RingBuf, [0, 0, RING_BYTES], 0)?;
        let read = Rc::new(Cell::new([0; 2]));
        let counted = Rc::clone(&read);
        Ok(BodyMaps {
            reader: maps::ring(&events, "events", move |event| {
                let mut counts = counted.get();
                if let Some(who) = writer(event) {
                    counts[usize::from(who == 0)] += 1;
                }
                counted.set(counts);
            })?,
            read,
            last_pid: make("last_pid", MapType::PercpuArray, [4, 8, 1], 0)?,
            hits_by_pid: make("hits_by_pid", MapType::Hash, [8, 8, ENTRIES], seed)?,
            events,
            stacks: make(
                "stacks",
                MapType::StackTrace,
                [4, 8 * STACK_DEPTH, ENTRIES],
                0,
            )?,
            user: UserPrograms::default(),
        })
    }

    /// The programs that run in user space, with maps of their own.
    pub(super) fn user_programs(&self) -> &UserPrograms {
        &self.user
    }

    /// Has an object use these instead of making its own.
    pub(super) fn lend(&self, open: &mut OpenNamed) -> Result<()> {
        let maps = [
            ("last_pid", &self.last_pid),
            ("hits_by_pid", &self.hits_by_pid),
            ("events", &self.events),
            ("stacks", &self.stacks),
        ];
        let mut maps = maps.into_iter();
        maps.try_for_each(|(name, made)| open.change_map(name, |map| map.reuse_fd(made.as_fd())))
    }

    /// The largest batch after which everything that a body left can be accounted for.
    pub fn most(body: Body) -> Option<u64> {
        let room = u64::from(RING_BYTES) / (EVENT_BYTES + HEADER_BYTES) as u64;
        body.fills_ring().then_some(room - SPARE_EVENTS)
    }

    /// Empties what a body fills, and returns how many things were in it: runs counted in the hash map,
    /// right events in the ring buffer, CPUs in the array, stacks in the map of stacks.
    pub fn take(&self, attach: Attach, body: Body) -> Result<u64> {
        if attach.space() == Space::User {
            return self.user.take(body);
        }
        match body {
            Body::Empty => Ok(0),
            Body::Map => self.take_last_pid(),
            Body::Hash => self.take_hits(),
            Body::Ringbuf | Body::RingbufWakeup => self.take_events(attach),
            Body::Stack => self.take_stacks(),
        }
    }

    fn take_last_pid(&self) -> Result<u64> {
        let values = maps::of_cpus(&self.last_pid, "last_pid")?;
        let written = values
            .iter()
            .filter(|value| value.iter().any(|byte| *byte != UNWRITTEN));
        let written = written.count() as u64;
        maps::fill_cpus(&self.last_pid, "last_pid", values, UNWRITTEN)?;
        Ok(written)
    }

    fn take_hits(&self) -> Result<u64> {
        let mut sum = 0;
        let keys: Vec<Vec<u8>> = self.hits_by_pid.keys().collect();
        for key in keys {
            let value = self
                .hits_by_pid
                .lookup(&key, MapFlags::ANY)
                .map_err(map_failed("hits_by_pid", "reading it"))?;
            sum += value
                .and_then(|value| value.try_into().ok())
                .map_or(0, u64::from_ne_bytes);
            // Counts begin again, and the entry stays: a batch finds it there.
            self.hits_by_pid
                .update(&key, &0u64.to_ne_bytes(), MapFlags::EXIST)
                .map_err(map_failed("hits_by_pid", "writing it"))?;
        }
        Ok(sum)
    }

    fn take_events(&self, attach: Attach) -> Result<u64> {
        self.read.set([0; 2]);
        self.reader
            .consume()
            .map_err(map_failed("events", "reading it"))?;
        // No process has the number 0: such an event was never written. A CPU may have it.
        let [by_others, by_zero] = self.read.get();
        let zero_writes = attach.sees_packets();
        Ok(by_others + if zero_writes { by_zero } else { 0 })
    }

    fn take_stacks(&self) -> Result<u64> {
        let mut stacks = 0;
        let keys: Vec<Vec<u8>> = self.stacks.keys().collect();
        for key in keys {
            // Stacks stay, as they do where a tool counts by stack: a batch finds its own there.
            let stack = self
                .stacks
                .lookup(&key, MapFlags::ANY)
                .map_err(map_failed("stacks", "reading it"))?;
            stacks += u64::from(stack.is_some());
        }
        Ok(stacks)
    }
}

/// Who wrote an event: a program writes its process or CPU into every word.
pub(super) fn writer(event: &[u8]) -> Option<u64> {
    if event.len() != EVENT_BYTES {
        return None;
    }
    let (words, _) = event.as_chunks::<8>();
    let first = words.first()?;
    words
        .iter()
        .all(|word| word == first)
        .then(|| u64::from_ne_bytes(*first))
}
