//! Frames of the kernel's own, redirected into a veth by `bpf/feeder.bpf.c`.

use std::io;

use libbpf_rs::ProgramMut;

use super::{
    hook::{self, Hook},
    live,
    veth::{HERE, RECEIVING, Receiver, SENDING, STRANGER, THERE, Veth},
};
use crate::{
    attach::{Attach, Attachment, BatchRequest, BatchResult, Driver, Events},
    error::{Error, Result, failed},
    feature::Feature,
    object::{NamedObject, OpenNamed},
};

/// Most attempts at a run that signals interrupt.
const TRIES: u32 = 20;

/// Frames of a run that are not timed: a batch before, and one after. Whole ones, so that each run finds the
/// kernel's caches of packets as full as the one before did: they are filled and emptied by 16 and more.
const AROUND: u64 = 2 * live::BATCH;

/// The program that counts on the other end, which tests attach.
const COUNT_ARRIVAL: &str = "count_arrival";

/// Most frames of a run: as many as its count has room for.
const MAX_EVENTS: u64 = (i32::MAX as u64 - AROUND) / live::BATCH * live::BATCH;

/// A veth, and the program that fills it.
pub(in crate::attach) struct Frames {
    feeder: NamedObject,
    veth: Veth,
    frame: Vec<u8>,
}

impl Frames {
    pub(in crate::attach) fn start() -> Result<Self> {
        Feature::XdpFrames.require()?;
        let veth = Veth::make(Driver::Frames, Receiver::Napi)?;
        let mut open = OpenNamed::open("feeder")?;
        open.with("feed")?;
        if cfg!(test) {
            open.with(COUNT_ARRIVAL)?;
        }
        Ok(Frames {
            feeder: open.load()?,
            veth,
            frame: datagram(),
        })
    }

    /// Runs the feeder once; false where a signal ended it early.
    fn run(&self, frames: u64) -> Result<bool> {
        let feeder = self.feeder.program("feed")?;
        self.veth
            .within(|| match live::run(&feeder, &self.frame, frames as u32) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                Err(error) => Err(failed("the feeder of frames", "running it")(error)),
            })
    }

    /// Frames until this one, from its start.
    fn fed(&self) -> u64 {
        self.feeder.globals.get("frames").unwrap_or(0)
    }
}

impl Events for Frames {
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        Driver::Frames.owns(attach)?;
        let link = self.veth.within(|| {
            hook::link(program, RECEIVING.index, Hook::XdpNative)
                .map_err(failed(attach.name(), "attaching it"))
        })?;
        Ok(Box::new(link))
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        let events = ask
            .events
            .clamp(1, MAX_EVENTS)
            .next_multiple_of(live::BATCH);
        let mut made = 0;
        for _ in 0..TRIES {
            let globals = &mut self.feeder.globals;
            for (variable, value) in [
                ("frames", 0),
                ("first", live::BATCH),
                ("last", live::BATCH + events),
                ("after_tick", ask.after_tick.into()),
                ("interface", SENDING.index.into()),
            ] {
                globals.set(variable, value)?;
            }
            // A reading of the clock that is not made must not pass for that of an earlier batch.
            globals.set_member("before", 0, "clock", u64::MAX)?;
            globals.set_member("after", 0, "clock", 0)?;
            let arrived = self.veth.arrived()?;
            let whole = self.run(events + AROUND)?;
            let fed = self.fed();
            self.veth.settle(arrived, fed)?;
            made += fed;
            if whole {
                return self.driven(events, made);
            }
        }
        Err(failed("the feeder of frames", "running it")(
            io::Error::from(io::ErrorKind::Interrupted),
        ))
    }
}

impl Frames {
    /// A member of the feeder's readings before and after.
    fn readings(&self, member: &str) -> Result<[u64; 2]> {
        let globals = &self.feeder.globals;
        Ok([
            globals.member("before", 0, member)?,
            globals.member("after", 0, member)?,
        ])
    }

    /// Computes the result from the feeder's readings between whole batches.
    fn driven(&self, events: u64, made: u64) -> Result<BatchResult> {
        let runs = self.readings("run")?;
        if runs != [live::BATCH, live::BATCH + events] {
            return Err(Error::Refused(format!(
                "the feeder read the clock at other frames than the first and the last: {:?}",
                Some(runs)
            )));
        }
        let between = |member| -> Result<u64> {
            let [before, after] = self.readings(member)?;
            Ok(after.saturating_sub(before))
        };
        Ok(BatchResult {
            events,
            made,
            elapsed_ns: between("clock")? as f64,
            ticks: between("ticks")?,
            waits: between("waits")?,
            // Frames come in sets.
            slices: Vec::new(),
        })
    }
}

/// A datagram of one byte, as the sending end would send it, with what Ethernet fills it up with.
fn datagram() -> Vec<u8> {
    /// The shortest frame, without its checksum.
    const FRAME_BYTES: usize = 60;
    const IPV4: [u8; 2] = [0x08, 0x00];
    // Version and length of header; service; length; number, not to be cut; hops; UDP; checksum below.
    let mut header = [
        0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    header[12..16].copy_from_slice(&HERE.ip().octets());
    header[16..].copy_from_slice(&THERE.ip().octets());
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = [&STRANGER[..], &SENDING.mac, &IPV4, &header].concat();
    // Ports, length, no checksum, the byte.
    frame.extend(HERE.port().to_be_bytes());
    frame.extend(THERE.port().to_be_bytes());
    frame.extend([0, 9, 0, 0, 0]);
    frame.resize(FRAME_BYTES, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require;

    /// All of a batch comes out of the veth before the next batch begins. Checked with a program that
    /// counts on the other end, and the feeder's look at the count when it reads the clock.
    #[test]
    fn a_batch_has_come_before_the_next_one_begins() {
        let mut frames = match Frames::start() {
            Ok(frames) => frames,
            Err(error) => {
                require::skip(error);
                return;
            }
        };
        let cpu = crate::current_cpu();
        let _pinned = crate::CpuPin::to(cpu).expect("pinned");
        let counter = frames.feeder.program(COUNT_ARRIVAL).expect("a program");
        let link = || {
            hook::link(&counter, RECEIVING.index, Hook::XdpNative)
                .map_err(failed("a counter", "attaching it"))
        };
        let _link = frames.veth.within(link).expect("a counter");
        // A softirq delayed by other work is no fault of the driver: once must do.
        let came = (0..20).any(|_| {
            let ask = BatchRequest {
                events: 1000,
                cpu,
                after_tick: true,
            };
            let before = arrivals(&frames);
            let driven = frames.batch(&ask).expect("a batch");
            assert_eq!((driven.events, driven.made), (1024, 1024 + 128));
            assert_eq!(arrivals(&frames) - before, driven.made);
            let seen = frames.readings("arrivals").expect("readings");
            let seen = seen.map(|arrivals| arrivals - before);
            eprintln!("{driven:?}, arrived before the clock was read: {seen:?}");
            seen == [64, 64 + 1024]
        });
        assert!(came);
    }

    fn arrivals(frames: &Frames) -> u64 {
        frames.feeder.globals.get("arrivals").expect("a variable")
    }

    #[test]
    fn the_frame_is_a_datagram() {
        let frame = datagram();
        let sliced = etherparse::SlicedPacket::from_ethernet(&frame).expect("a packet");
        let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else {
            panic!("no IPv4: {sliced:?}");
        };
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        assert_eq!(header.destination, THERE.ip().octets());
        let Some(etherparse::TransportSlice::Udp(udp)) = &sliced.transport else {
            panic!("no UDP: {sliced:?}");
        };
        assert_eq!(udp.payload(), [0]);
    }
}
