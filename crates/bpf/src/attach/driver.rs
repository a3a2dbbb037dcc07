//! Drivers: who makes the events, and what a batch of them is.

use std::fmt;

use libbpf_rs::Link;

use super::{
    Attach, Body, Probe,
    fault::Faults,
    kernel::{self, Kernel},
    net::{Frames, Sendto},
    user::Calls,
};
use crate::{
    error::{Error, Result},
    feature::Feature,
};

/// Half of what `can_loop` grants a program before Linux 6.15, as in other experiments.
const MOST_CALLS: u64 = 1 << 22;

/// Pages that a thread can find missing in one batch: 256 MiB of addresses and half a MiB of page tables
/// where pages have 4 KiB, and no memory.
pub(super) const MOST_FAULTS: u64 = 1 << 16;

/// Who makes the events of a family of attach types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Driver {
    /// BPF calls `bpf_get_numa_node_id`.
    Helper,
    /// BPF calls `bpf_modify_return_test_tp`, which has a tracepoint in it.
    Kfunc,
    /// BPF calls `bpf_trace_printk`, which has a tracepoint in it.
    Printk,
    /// BPF calls bpf(2) from inside.
    SysBpf,
    /// A thread sends datagrams of one byte to a veth whose other end drops them.
    Sendto,
    /// The kernel sends frames of its own to a veth, in batches of 64.
    Frames,
    /// A thread reads pages that are not there yet.
    PageFault,
    /// A thread calls a function that begins with a `nop`.
    UserNop,
    /// … with a `nop` of five bytes.
    UserNop5,
    /// … with a `push`.
    UserPush,
    /// A thread calls a function that is a `ret` alone.
    UserRet,
}

impl Driver {
    /// All of them.
    pub const ALL: [Driver; 11] = [
        Driver::Helper,
        Driver::Kfunc,
        Driver::Printk,
        Driver::SysBpf,
        Driver::Sendto,
        Driver::Frames,
        Driver::PageFault,
        Driver::UserNop,
        Driver::UserNop5,
        Driver::UserPush,
        Driver::UserRet,
    ];

    /// As cases are named.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Helper => "helper",
            Driver::Kfunc => "kfunc",
            Driver::Printk => "printk",
            Driver::SysBpf => "sys-bpf",
            Driver::Sendto => "sendto",
            Driver::Frames => "frames",
            Driver::PageFault => "page-fault",
            Driver::UserNop => "user-nop",
            Driver::UserNop5 => "user-nop5",
            Driver::UserPush => "user-push",
            Driver::UserRet => "user-ret",
        }
    }

    /// What an event is.
    pub fn about(self) -> &'static str {
        match self {
            Driver::Helper => "a call of bpf_get_numa_node_id",
            Driver::Kfunc => "a call of bpf_modify_return_test_tp, its tracepoint in it",
            Driver::Printk => "a call of bpf_trace_printk, its tracepoint in it",
            Driver::SysBpf => "a call of bpf(2) from inside the kernel",
            Driver::Sendto => "a datagram sent into a veth, and dropped at its other end",
            Driver::Frames => "a frame redirected into a veth, and dropped at its other end",
            Driver::PageFault => "a page read that was not there",
            Driver::UserNop => "a call of a function that begins with a nop",
            Driver::UserNop5 => "a call of a function that begins with a nop of 5 bytes",
            Driver::UserPush => "a call of a function that begins with a push",
            Driver::UserRet => "a call of a function that is a ret",
        }
    }

    /// What the kernel must have for these events.
    pub fn needs(self) -> &'static [Feature] {
        match self {
            Driver::Helper | Driver::Printk | Driver::SysBpf => {
                &[Feature::Btf, Feature::SyscallProgram, Feature::BpfLoop]
            }
            Driver::Kfunc => &[
                Feature::Btf,
                Feature::TriggerKfunc,
                Feature::SyscallProgram,
                Feature::BpfLoop,
            ],
            Driver::Sendto => &[Feature::Veth],
            Driver::Frames => &[
                Feature::Btf,
                Feature::Veth,
                Feature::XdpFrames,
                Feature::BpfLoop,
            ],
            Driver::PageFault
            | Driver::UserNop
            | Driver::UserNop5
            | Driver::UserPush
            | Driver::UserRet => &[],
        }
    }

    /// The largest batch that makes sense; `None` where there is no limit.
    pub fn most(self) -> Option<u64> {
        match self {
            Driver::Helper | Driver::Kfunc | Driver::Printk | Driver::SysBpf => Some(MOST_CALLS),
            Driver::PageFault => Some(MOST_FAULTS),
            _ => None,
        }
    }

    /// Refuses what is not of its family.
    pub(super) fn owns(self, attach: Attach) -> Result<()> {
        match attach.driver() == self {
            true => Ok(()),
            false => Err(Error::Stranger {
                attach,
                driver: self,
            }),
        }
    }

    /// Gets ready to make events: programs loaded, interfaces made. Dropping it undoes all of it.
    pub fn start(self) -> Result<Box<dyn Events>> {
        match self {
            Driver::Helper | Driver::Kfunc | Driver::Printk | Driver::SysBpf => {
                Ok(Box::new(Kernel::load(self)?))
            }
            Driver::PageFault => Ok(Box::new(Faults::map()?)),
            Driver::UserNop | Driver::UserNop5 | Driver::UserPush | Driver::UserRet => {
                Ok(Box::new(Calls::of(self)?))
            }
            Driver::Sendto => Ok(Box::new(Sendto::start()?)),
            Driver::Frames => Ok(Box::new(Frames::start()?)),
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a batch should be.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Events, at least 1.
    pub events: u64,
    /// Where: the calling thread is on it already, and stays.
    pub cpu: u32,
    /// Whether the batch begins just after a tick of the timer; see [`crate::timing::Request`].
    pub after_tick: bool,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Driven {
    /// Events that were timed: as many as asked for, or more where they come in sets.
    pub events: u64,
    /// Events in all: those around the timed ones too, where there are some.
    pub made: u64,
    /// Time of the timed ones, in nanoseconds of the clock.
    pub elapsed_ns: f64,
    /// Timer ticks meanwhile.
    pub ticks: u64,
    /// How often the thread waited meanwhile; see [`crate::timing::Seen::waits`].
    pub waits: u64,
}

/// Events of one driver. Dropping it undoes all that it made.
pub trait Events {
    /// Attaches the program with that body to the events, in the probe's way.
    fn attach(&mut self, probe: &mut Probe, body: Body) -> Result<Box<dyn Attached>>;

    /// Makes events, and times them.
    fn batch(&mut self, ask: &Ask) -> Result<Driven>;
}

/// A program that is attached. Dropping it detaches the program, and puts back every setting.
pub trait Attached {
    /// What is wrong with how it is attached just now, asked before and after each batch.
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        Ok(None)
    }

    /// Events that the mechanism itself says it missed since it was attached.
    fn missed(&mut self) -> Result<u64> {
        Ok(0)
    }
}

/// A state that is not what an attach type means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was looked at, e.g. `kprobe's state`.
    pub check: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub got: String,
}

impl Attached for Link {
    fn missed(&mut self) -> Result<u64> {
        kernel::missed(self)
    }
}
