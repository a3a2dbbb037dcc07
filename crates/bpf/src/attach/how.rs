//! How a program is attached to an event of a running system, and what the kernel says of the events that
//! it missed.

use libbpf_rs::{Link, OpenProgramMut, ProgramMut};

use super::{
    Attach, Attached,
    kernel::{self, Event, Inside, Tools, tracepoint_name},
};
use crate::{
    error::{Error, Result, failed},
    feature::{self, Feature, Version},
    stats::RunStats,
};

/// The kernel that first tells what a link to many functions missed (3acf8ace6823).
const LINKS_TELL: Version = Version((6, 7));

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// To a tracepoint, through perf.
    Tracepoint,
    /// To a tracepoint itself.
    RawTp,
    /// The same, with the types of its arguments.
    TpBtf,
    /// By a kprobe at the function's entry: on ftrace's call, where there is one.
    Kprobe,
    /// By a kprobe on the first instruction behind ftrace's call, by a breakpoint: each call of the function
    /// comes there, and never by ftrace.
    KprobeInt3,
    /// By an fprobe on the function's entry.
    KprobeMulti,
    /// By a kretprobe.
    Kretprobe {
        /// Instances that it holds ready: as many calls can be inside at once, 1 to 4096.
        maxactive: u32,
    },
    /// By an fprobe on the function's return.
    KretprobeMulti,
    /// By a trampoline at the function's entry.
    Fentry,
    /// By a trampoline around the function.
    Fexit,
}

impl How {
    /// As an attach type.
    pub fn attach(self) -> Attach {
        match self {
            How::Tracepoint => Attach::Tracepoint,
            How::RawTp => Attach::RawTp,
            How::TpBtf => Attach::TpBtf,
            How::Kprobe => Attach::Kprobe,
            How::KprobeInt3 => Attach::KprobeInt3,
            How::KprobeMulti => Attach::KprobeMulti,
            How::Kretprobe { .. } => Attach::Kretprobe,
            How::KretprobeMulti => Attach::KretprobeMulti,
            How::Fentry => Attach::Fentry,
            How::Fexit => Attach::Fexit,
        }
    }

    /// Whether what it is attached to is a tracepoint, `category:name`, and not a function.
    pub fn takes_tracepoints(self) -> bool {
        matches!(self, How::Tracepoint | How::RawTp | How::TpBtf)
    }

    /// What the kernel must have, the most telling first.
    pub fn needs(self) -> Vec<Feature> {
        let own = self.attach().own_needs();
        let further: &[Feature] = match self {
            How::RawTp | How::TpBtf | How::Kprobe | How::Kretprobe { .. } => &[Feature::Tracefs],
            // It is asked by a program whether the breakpoint is there.
            How::KprobeInt3 => &[Feature::SyscallProgram],
            _ => &[],
        };
        [own, further].concat()
    }

    /// Tells a program that is not loaded yet what it will be attached to, where the kernel wants to know
    /// then.
    pub(super) fn aim(
        self,
        program: &mut OpenProgramMut<'_>,
        event: &str,
    ) -> libbpf_rs::Result<()> {
        let target = match self {
            How::TpBtf | How::Fentry | How::Fexit => Some(tracepoint_name(event)),
            _ => None,
        };
        self.attach().aim_at(program, target)
    }

    /// Why a program that was aimed can't be loaded, where the event is why.
    pub(super) fn explain_load(self, event: &str, error: Error) -> Error {
        match error {
            // libbpf looks for the function, and says nothing where there is none.
            Error::Load { source, log, .. } if log.is_empty() || log.contains("kernel BTF") => {
                self.explain(event, source)
            }
            other => other,
        }
    }

    fn explain(self, event: &str, source: libbpf_rs::Error) -> Error {
        match self.takes_tracepoints() {
            true => kernel::explain_tracepoint(self.attach(), event, source),
            false => kernel::explain(self.attach(), event, source),
        }
    }
}

/// What some ways to attach need and is dear to get: made where it is needed, and kept for the next time.
#[derive(Default)]
pub(crate) struct Toolbox(Option<Tools>);

/// An attached program. Dropping it detaches the program.
pub(crate) struct Held {
    how: How,
    by: By,
}

enum By {
    Link(Link),
    /// The event is dropped behind the link, for one that is in use is not removed.
    Event(
        #[allow(dead_code, reason = "held for what its dropping does")] Link,
        Event,
    ),
    Inside(Inside),
}

impl Held {
    /// Attaches a loaded program.
    pub(crate) fn attach(
        how: How,
        program: &ProgramMut<'_>,
        event: &str,
        tools: &mut Toolbox,
    ) -> Result<Self> {
        let attach = how.attach();
        let of_link = |link: libbpf_rs::Result<Link>| {
            link.map(By::Link)
                .map_err(|source| how.explain(event, source))
        };
        let of_event = |maxactive| -> Result<By> {
            let (made, opened) =
                Event::open(event, maxactive)?.map_err(|error| how.explain(event, error.into()))?;
            let link = kernel::perf(program, opened).map_err(|source| how.explain(event, source));
            Ok(By::Event(link?, made))
        };
        let by = match how {
            How::Tracepoint => {
                let opened = kernel::open_tracepoint(attach, event)?;
                of_link(kernel::perf(program, opened))?
            }
            How::RawTp => of_link(program.attach_raw_tracepoint(tracepoint_name(event)))?,
            How::Kprobe => of_event(None)?,
            How::Kretprobe { maxactive } => of_event(Some(maxactive))?,
            How::KprobeInt3 => {
                let tools = match &mut tools.0 {
                    Some(tools) => tools,
                    none => none.insert(Tools::make()?),
                };
                By::Inside(kernel::inside(attach, program, event, tools)?)
            }
            How::KprobeMulti => of_link(kernel::multi(program, event, false))?,
            How::KretprobeMulti => of_link(kernel::multi(program, event, true))?,
            How::TpBtf | How::Fentry | How::Fexit => of_link(program.attach_trace())?,
        };
        Ok(Held { how, by })
    }

    /// Events that the kernel says were missed, since it was attached and, by the program itself, since it
    /// was loaded; `None` where it doesn't say.
    pub(crate) fn missed(&mut self, program: &ProgramMut<'_>) -> Result<Option<u64>> {
        let multi = matches!(self.how, How::KprobeMulti | How::KretprobeMulti);
        let by_mechanism = match &mut self.by {
            By::Event(_, event) => event.missed().map_err(failed(
                self.how.attach().to_string(),
                "asking what it missed, in tracefs's kprobe_profile",
            ))?,
            By::Link(_) if multi && !links_tell() => return Ok(None),
            By::Link(link) => kernel::missed(link)?,
            By::Inside(inside) => inside.missed()?,
        };
        let passed_over = RunStats::of(program)?.recursion_misses;
        Ok(Some(by_mechanism + passed_over))
    }
}

/// Whether this kernel says what a link to many functions missed.
fn links_tell() -> bool {
    Version::of_release(&feature::release()).is_some_and(|version| version >= LINKS_TELL)
}
