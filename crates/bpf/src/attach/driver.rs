//! The table of drivers: how each makes events, and in which batches.

use std::os::fd::OwnedFd;

use libbpf_rs::{Link, ProgramMut};

use super::{
    Attach,
    fault::Faults,
    kernel::{self, KernelDriver},
    net::{Frames, Sendto},
    user::{SiteCode, UserCalls},
    user_programs::UserProgram,
};
use crate::{
    error::{Error, Result},
    feature::Feature,
    routine::Routine,
    table::table,
};

/// Half of what `can_loop` grants a program before Linux 6.15, as in other experiments.
const MAX_CALLS: u64 = 1 << 22;

/// Pages that a thread can find missing in one batch: 256 MiB of addresses and half a MiB of page tables
/// where pages have 4 KiB, and no memory.
pub(super) const MAX_FAULTS: u64 = 1 << 16;

table! {
/// Who makes the events of a family of attach types.
pub enum Driver: DriverInfo {
    /// BPF calls `bpf_get_numa_node_id`.
    Helper = in_kernel("helper", "a call of bpf_get_numa_node_id", IN_KERNEL, DriverCall {
        program: "drive_helper",
        functions: &["bpf_get_numa_node_id"],
        tracepoint: None,
    });
    /// BPF calls `bpf_modify_return_test_tp`, which has a tracepoint in it.
    Kfunc = in_kernel("kfunc", "a call of bpf_modify_return_test_tp, its tracepoint in it", BY_KFUNC, DriverCall {
        program: "drive_kfunc",
        functions: &["bpf_modify_return_test_tp"],
        tracepoint: Some("bpf_test_run:bpf_trigger_tp"),
    });
    /// BPF calls `bpf_trace_printk`, which has a tracepoint in it.
    Printk = in_kernel("printk", "a call of bpf_trace_printk, its tracepoint in it", IN_KERNEL, DriverCall {
        program: "drive_printk",
        functions: &["bpf_trace_printk"],
        tracepoint: Some("bpf_trace:bpf_trace_printk"),
    });
    /// BPF calls bpf(2) from inside.
    SysBpf = in_kernel("sys-bpf", "a call of bpf(2) from inside the kernel", IN_KERNEL, DriverCall {
        program: "drive_sys_bpf",
        functions: &["security_bpf", "bpf_lsm_bpf"],
        tracepoint: None,
    });
    /// A thread sends datagrams of one byte to a veth whose other end drops them.
    Sendto = driver_info("sendto", "a datagram sent into a veth, and dropped at its other end", &[Feature::Veth], EventSource::Sendto);
    /// The kernel sends its own frames to a veth, in batches of 64.
    Frames = driver_info(
        "frames",
        "a frame redirected into a veth, and dropped at its other end",
        &[Feature::Btf, Feature::Veth, Feature::XdpFrames, Feature::BpfLoop],
        EventSource::Frames,
    );
    /// A thread reads pages that are not there yet.
    PageFault = DriverInfo {
        most: Some(MAX_FAULTS),
        ..driver_info("page-fault", "a read of a page that is not mapped", &[], EventSource::PageFaults)
    };
    /// A thread of another process calls a function that begins with a `nop`.
    UserNop = calls("user-nop", "a call of a function that begins with a nop", Routine::Nop);
    /// … with a `nop` of five bytes.
    UserNop5 = calls("user-nop5", "a call of a function that begins with a nop of 5 bytes", Routine::Nop5);
    /// … with a `nop` of ten bytes.
    UserNop10 = calls("user-nop10", "a call of a function that begins with a nop of 10 bytes", Routine::Nop10);
    /// … with an `endbr64`.
    UserEndbr64 = calls("user-endbr64", "a call of a function that begins with an endbr64", Routine::Endbr64);
    /// … with a `push`.
    UserPush = calls("user-push", "a call of a function that begins with a push", Routine::Push);
    /// A thread calls a function that is a `ret` alone.
    UserRet = calls("user-ret", "a call of a function that is a ret", Routine::Ret);
    /// A thread calls a function that leaves by a jump to another one.
    UserTail = calls("user-tail", "a call of a function that leaves by a jump to another", Routine::Tail);
}
}

/// Facts about a driver.
struct DriverInfo {
    name: &'static str,
    about: &'static str,
    needs: &'static [Feature],
    most: Option<u64>,
    source: EventSource,
}

/// Source of a driver's events.
enum EventSource {
    Kernel(DriverCall),
    Calls(Routine),
    Sendto,
    Frames,
    PageFaults,
}

/// The call that a program of `bpf/driver.bpf.c` makes in its timed loop.
#[derive(Clone, Copy)]
pub(super) struct DriverCall {
    /// The program's name, for the cheapest loop.
    pub(super) program: &'static str,
    /// The kernel's functions that each event passes through, the one that is called first.
    pub(super) functions: &'static [&'static str],
    /// The tracepoint in it, `category:name`.
    pub(super) tracepoint: Option<&'static str>,
}

const IN_KERNEL: &[Feature] = &[Feature::Btf, Feature::SyscallProgram, Feature::BpfLoop];
const BY_KFUNC: &[Feature] = &[
    Feature::Btf,
    Feature::TriggerKfunc,
    Feature::SyscallProgram,
    Feature::BpfLoop,
];

const fn driver_info(
    name: &'static str,
    about: &'static str,
    needs: &'static [Feature],
    source: EventSource,
) -> DriverInfo {
    DriverInfo {
        name,
        about,
        needs,
        most: None,
        source,
    }
}

const fn in_kernel(
    name: &'static str,
    about: &'static str,
    needs: &'static [Feature],
    called: DriverCall,
) -> DriverInfo {
    DriverInfo {
        most: Some(MAX_CALLS),
        ..driver_info(name, about, needs, EventSource::Kernel(called))
    }
}

const fn calls(name: &'static str, about: &'static str, routine: Routine) -> DriverInfo {
    driver_info(name, about, &[], EventSource::Calls(routine))
}

impl Driver {
    /// Describes an event.
    pub fn about(self) -> &'static str {
        self.known().about
    }

    /// Kernel features that these events need.
    pub fn needs(self) -> &'static [Feature] {
        self.known().needs
    }

    /// The largest batch that makes sense; `None` where there is no limit.
    pub fn most(self) -> Option<u64> {
        self.known().most
    }

    /// The call in the kernel for each event, where that is known.
    pub(super) fn called(self) -> Option<DriverCall> {
        match self.known().source {
            EventSource::Kernel(called) => Some(called),
            _ => None,
        }
    }

    /// Refuses what is not of its family.
    pub(super) fn owns(self, attach: Attach) -> Result<()> {
        if attach.driver() == self {
            Ok(())
        } else {
            Err(Error::Refused(format!(
                "{attach} is not attached to events of {self}"
            )))
        }
    }

    /// Gets ready to make events: programs loaded, interfaces made. Dropping it undoes all of it.
    pub fn start(self) -> Result<Box<dyn Events>> {
        Ok(match self.known().source {
            EventSource::Kernel(called) => Box::new(KernelDriver::load(self, called)?),
            EventSource::Calls(routine) => Box::new(UserCalls::new(self, routine)?),
            EventSource::Sendto => Box::new(Sendto::start()?),
            EventSource::Frames => Box::new(Frames::start()?),
            EventSource::PageFaults => Box::new(Faults::map()?),
        })
    }
}

/// A request for a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest {
    /// Events, at least 1.
    pub events: u64,
    /// CPU of the batch: the calling thread is on it already, and stays.
    pub cpu: u32,
    /// True to begin the batch just after a tick of the timer; see [`crate::timing::Request`].
    pub after_tick: bool,
}

/// The result of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchResult {
    /// Events that were timed: as many as asked for, or more where they come in sets.
    pub events: u64,
    /// Events in all: those around the timed ones too, where there are some.
    pub made: u64,
    /// Time of the timed ones, in nanoseconds of the clock.
    pub elapsed_ns: f64,
    /// Timer ticks meanwhile.
    pub ticks: u64,
    /// Waits of the thread meanwhile; see [`crate::cpu::OutsideTime`].
    pub waits: u64,
    /// Nanoseconds per event of each slice; see [`crate::timing::Observation::slices`]. Empty where the batch was not
    /// cut.
    pub slices: Vec<f64>,
}

/// Events of one driver. Dropping it undoes all that it made.
pub trait Events {
    /// Attaches a program to the events, which was [aimed](Attach::aim) at them before it was loaded: one of this
    /// crate or anyone's.
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>>;

    /// Attaches a program in user space, where the events are calls of a function.
    fn attach_inside(
        &mut self,
        attach: Attach,
        _program: &UserProgram<'_>,
    ) -> Result<Box<dyn Attachment>> {
        let words = format!("{attach} is of events of the kernel, not of a process");
        Err(Error::Refused(words))
    }

    /// Has threads make events, one for each of `cpus`, so many each, and one before: nanoseconds from the first
    /// one's beginning to the last one's end. Where the events are calls of a function.
    fn batch_of_threads(&mut self, _events: u64, _cpus: &[u32]) -> Result<u64> {
        let words = "these events are one thread's".to_owned();
        Err(Error::Refused(words))
    }

    /// The process that makes the events, where that is another one.
    fn process(&self) -> Option<i32> {
        None
    }

    /// Makes events, and times them.
    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult>;
}

/// A program that is attached. Dropping it detaches the program, and puts back every setting.
pub trait Attachment {
    /// Returns what is wrong with the attachment just now, if anything; asked before and after each batch.
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        Ok(None)
    }

    /// The address of the function that the driver calls, where the program is called for others too.
    fn function(&self) -> Option<u64> {
        None
    }

    /// The code put at the probe's site, where that is code of user space.
    fn placed(&self) -> Option<SiteCode> {
        None
    }

    /// Events that the mechanism itself says it missed since it was attached.
    fn missed(&mut self) -> Result<u64> {
        Ok(0)
    }
}

/// A state that is not what an attach type means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The state that was checked, e.g. `kprobe's state`.
    pub check: &'static str,
    /// The expected state.
    pub expected: String,
    /// The actual state.
    pub got: String,
}

/// A link that libbpf knows nothing of. Closing it detaches the program.
impl Attachment for OwnedFd {}

impl Attachment for Link {
    fn missed(&mut self) -> Result<u64> {
        kernel::missed(self)
    }
}
