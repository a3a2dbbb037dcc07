//! Events made inside the kernel, and how programs are attached to them: BPF calls a function in a timed loop
//! (`bpf/driver.bpf.c`).

mod all;
mod event;
mod function;
mod inside;
mod link;
mod optimisation;
pub(super) mod others;
mod peek;
mod state;
mod tracepoint;

use bpfcost_uprobe::object::load_quietly;
use libbpf_rs::{Link, ProgramMut};

use self::{all::AllFunctions, state::trouble};
pub(super) use self::{
    all::left_out,
    event::Event,
    inside::{Inside, Tools, attach as inside},
    link::{FprobeTargets, fprobe, missed, perf_with, tracepoint_event, trampolines},
    optimisation::KPROBE_OPTIMISATION,
    state::{KprobeList, KprobeState},
    tracepoint::{
        explain as explain_tracepoint, name as tracepoint_name, number as tracepoint_number,
        only_of_perf, open as open_tracepoint,
    },
};
pub(crate) use self::{
    function::{explain, has_function, read_lists, symbols, traceable_like, unfit},
    link::{inside as kprobe, multi, perf},
};
use super::{
    Attach, Attachment, BatchRequest, BatchResult, Driver, Events, Trouble, driver::DriverCall,
};
use crate::{
    error::{Error, Result, failed},
    feature,
    timed::{OpenObject, TimedObject},
    timing::{Loop, Request},
};

/// Bytes that ftrace's call and what stands before it take at most.
const ENTRY_BYTES: u32 = 4;

/// Placeholder for the answer of a driver's last call before it is made. No call answers so.
const UNANSWERED: u64 = 1 << 63;

/// A driver that runs in the kernel, and what its attach types need and is dear to get.
pub(super) struct KernelDriver {
    driver: Driver,
    called: DriverCall,
    object: TimedObject,
    kprobes: Option<KprobeList>,
    inside: Option<inside::Tools>,
    all: Option<AllFunctions>,
    tracepoint: Option<u64>,
}

impl KernelDriver {
    pub(super) fn load(driver: Driver, called: DriverCall) -> Result<Self> {
        let load = || {
            let mut open = OpenObject::open("driver", Loop::probe()?)?;
            open.time(called.program)?;
            open.load()
        };
        let object = if driver == Driver::Printk {
            load_quietly(load)?
        } else {
            load()?
        };
        Ok(KernelDriver {
            driver,
            called,
            object,
            kprobes: KprobeList::open().ok(),
            inside: None,
            all: None,
            tracepoint: None,
        })
    }
}

impl Events for KernelDriver {
    fn attach(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        self.driver.owns(attach)?;
        match attach {
            Attach::Tracepoint | Attach::TracepointPrintk => self.tracepoint(attach, program),
            Attach::KprobeInt3 | Attach::KprobeOptimised => self.inside(attach, program),
            Attach::KprobeMultiAll => self.everywhere(attach, program),
            Attach::FentryMulti | Attach::FexitMulti | Attach::FsessionMulti => {
                self.trampoline(attach, program)
            }
            _ => self.by_libbpf(attach, program),
        }
    }

    fn batch(&mut self, ask: &BatchRequest) -> Result<BatchResult> {
        let request = Request {
            ops: ask.events,
            resets: 1,
            cpus: &[ask.cpu],
            after_tick: ask.after_tick,
        };
        self.object.set_variable("answers", UNANSWERED)?;
        let packets = &[Vec::new()];
        let seen = self.object.batch(self.called.program, &request, packets);
        let seen = seen?.remove(0);
        let answer = self.object.variable("answers")?;
        if !self.driver.may_answer(answer) {
            return Err(Error::Refused(format!(
                "the last call of the driver {} answered {}: it was not the call that is timed",
                self.driver, answer as i64
            )));
        }
        if seen.ops == ask.events && !seen.edges_in_order {
            return Err(Error::Refused(
                "the clock went back between slices of the batch".to_owned(),
            ));
        }
        if !seen.fits_outside() {
            return Err(Error::Refused(format!(
                "the batch lasted {} ns by the clock of its program, and {} ns from outside",
                seen.inside_ns(),
                seen.outside.elapsed_ns
            )));
        }
        Ok(BatchResult {
            events: seen.ops,
            made: seen.ops,
            elapsed_ns: seen.elapsed_ns(),
            ticks: seen.ticks,
            waits: seen.outside.waits,
            slices: seen.slices,
        })
    }
}

impl Driver {
    /// Returns true if a call of this driver may return that: without it, nothing shows that calls were made
    /// where no program is attached.
    fn may_answer(self, answer: u64) -> bool {
        match self {
            // The map that it asks for does not exist.
            Driver::SysBpf => answer as i64 == -i64::from(libc::EBADF),
            _ => answer != UNANSWERED,
        }
    }
}

impl KernelDriver {
    fn by_libbpf(&self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        let function = self.called.functions[0];
        let tracepoint = tracepoint::name(self.called.tracepoint.unwrap_or_default());
        let link = match attach {
            Attach::Kprobe | Attach::Kretprobe => {
                program.attach_kprobe(attach.at_return(), function)
            }
            Attach::KprobeMulti | Attach::KretprobeMulti => {
                multi(program, &[function.to_owned()], attach.at_return(), false)
            }
            Attach::KprobeSession => multi(program, &[function.to_owned()], false, true),
            Attach::RawTp | Attach::RawTpPrintk => program.attach_raw_tracepoint(tracepoint),
            Attach::Lsm => program.attach_lsm(),
            _ => program.attach_trace(),
        };
        let link = link.map_err(|source| function::explain(attach, function, source))?;
        match (attach, &self.kprobes) {
            (Attach::Kprobe | Attach::Kretprobe, Some(list)) => Ok(Box::new(EntryKprobe {
                link,
                function,
                list: list.clone(),
            })),
            _ => Ok(Box::new(link)),
        }
    }

    fn inside(&mut self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        let tools = match &mut self.inside {
            Some(tools) => tools,
            none => none.insert(inside::Tools::make()?),
        };
        let function = self.called.functions[0];
        let inside = inside::attach(attach, program, function, tools)?;
        Ok(Box::new(inside))
    }

    fn everywhere(
        &mut self,
        attach: Attach,
        program: &ProgramMut<'_>,
    ) -> Result<Box<dyn Attachment>> {
        let all = match &mut self.all {
            Some(all) => all,
            none => none.insert(AllFunctions::find(
                attach,
                program,
                self.called.functions[0],
            )?),
        };
        match all.attach(program) {
            Ok(link) => Ok(Box::new(AllFunctionsProbe {
                link,
                function: all.target,
            })),
            Err(source) => Err(failed(attach.name(), "attaching it")(source)),
        }
    }

    fn tracepoint(
        &mut self,
        attach: Attach,
        program: &ProgramMut<'_>,
    ) -> Result<Box<dyn Attachment>> {
        let number = match self.tracepoint {
            Some(number) => number,
            None => tracepoint::number(attach, self.called.tracepoint.unwrap_or_default())?,
        };
        self.tracepoint = Some(number);
        let event = link::tracepoint_event(number)
            .map_err(failed(attach.name(), "opening the tracepoint's event"))?;
        let link = link::perf(program, event).map_err(failed(attach.name(), "attaching it"))?;
        Ok(Box::new(link))
    }

    fn trampoline(&self, attach: Attach, program: &ProgramMut<'_>) -> Result<Box<dyn Attachment>> {
        let function = self.called.functions[0];
        let Some(number) = feature::btf_number(function) else {
            let source = libbpf_rs::Error::from_raw_os_error(libc::ENOENT);
            return Err(function::explain(attach, function, source));
        };
        match link::trampolines(program, attach.expected(), &[number]) {
            Ok(link) => Ok(Box::new(link)),
            Err(source) => Err(function::explain(attach, function, source)),
        }
    }
}

/// A program at all functions.
struct AllFunctionsProbe {
    link: Link,
    function: u64,
}

impl Attachment for AllFunctionsProbe {
    fn missed(&mut self) -> Result<u64> {
        missed(&self.link)
    }

    fn function(&self) -> Option<u64> {
        Some(self.function)
    }
}

/// A kprobe at the entry of a function, where ftrace has its call.
struct EntryKprobe {
    link: Link,
    function: &'static str,
    list: KprobeList,
}

impl Attachment for EntryKprobe {
    fn trouble(&mut self) -> Result<Option<Trouble>> {
        let listed = self.list.find(self.function, 0..=ENTRY_BYTES)?;
        Ok(trouble(
            KprobeState::Ftrace,
            listed.map(|listed| listed.state),
        ))
    }

    fn missed(&mut self) -> Result<u64> {
        missed(&self.link)
    }
}
