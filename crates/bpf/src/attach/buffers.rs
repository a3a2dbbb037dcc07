//! The ring and perf buffers of a user's object. Its own reader does not run here, and an event that is not read costs
//! less: no wakeup, and once the buffer is full no copy. So this process reads the buffers and discards the events.

use std::{cell::Cell, rc::Rc, time::Duration};

use libbpf_rs::{
    Map, MapCore as _, MapType, Object, PerfBuffer, PerfBufferBuilder, RingBuffer,
    RingBufferBuilder,
};

/// Counts of records taken out of buffers, and of lost ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferCounts {
    /// Records.
    pub records: u64,
    /// Records that had no room in perf buffers. Ring buffers do not count theirs.
    pub lost: u64,
}

/// The buffers of an object that are its own.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// All ring buffers, which are waited for together.
    rings: Option<RingBuffer<'static>>,
    perf: Vec<PerfBuffer<'static>>,
    taken: Rc<Cell<BufferCounts>>,
}

impl Buffers {
    /// Opens the buffers of a loaded object; `None` where it has none.
    pub(crate) fn open(object: &Object) -> libbpf_rs::Result<Option<Self>> {
        let taken = Rc::new(Cell::new(BufferCounts::default()));
        let of_type = |wanted: MapType| -> Vec<Map<'_>> {
            // What is pinned belongs to others too: taking from it would rob them.
            let is_private = |map: &Map<'_>| map.map_type() == wanted && !map.is_pinned();
            object.maps().filter(is_private).collect()
        };
        let (rings, perf) = (of_type(MapType::RingBuf), of_type(MapType::PerfEventArray));
        if rings.is_empty() && perf.is_empty() {
            return Ok(None);
        }
        let add = |taken: &Cell<BufferCounts>, records, lost| {
            let before = taken.get();
            taken.set(BufferCounts {
                records: before.records + records,
                lost: before.lost + lost,
            });
        };
        let mut builder = RingBufferBuilder::new();
        for map in &rings {
            let taken = Rc::clone(&taken);
            builder.add(map, move |_| {
                add(&taken, 1, 0);
                0
            })?;
        }
        let open = |map: &Map<'_>| {
            let (read, missed) = (Rc::clone(&taken), Rc::clone(&taken));
            PerfBufferBuilder::new(map)
                .sample_cb(move |_, _: &[u8]| add(&read, 1, 0))
                .lost_cb(move |_, lost| add(&missed, 0, lost))
                .build()
        };
        Ok(Some(Buffers {
            rings: (!rings.is_empty()).then(|| builder.build()).transpose()?,
            perf: perf.iter().map(open).collect::<Result<_, _>>()?,
            taken,
        }))
    }

    /// Takes what is there, and waits for more, for about so long.
    pub(crate) fn wait(&self, timeout: Duration) -> libbpf_rs::Result<()> {
        let waits = self.perf.len() + usize::from(self.rings.is_some());
        let share = timeout / u32::try_from(waits).unwrap_or(u32::MAX);
        if let Some(rings) = &self.rings {
            rings.poll(share)?;
        }
        self.perf.iter().try_for_each(|one| one.poll(share))
    }

    /// Takes what is there; all that was taken so far.
    pub(crate) fn take(&self) -> libbpf_rs::Result<BufferCounts> {
        if let Some(rings) = &self.rings {
            rings.consume()?;
        }
        self.perf.iter().try_for_each(PerfBuffer::consume)?;
        Ok(self.taken.get())
    }
}
