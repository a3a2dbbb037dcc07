//! Attaches a program to an event of a running system, and reads the kernel's count of events that it missed.

use libbpf_rs::{Link, OpenProgramMut, ProgramMut};

use super::{
    Attach, Attachment,
    kernel::{self, Event, Inside, Tools, tracepoint_name},
};
use crate::{
    error::{Error, Result, failed},
    feature::{self, Feature, LinuxVersion},
    stats::RunStats,
};

/// The first kernel that reports the events a link to many functions missed (3acf8ace6823).
const LINKS_TELL: LinuxVersion = LinuxVersion((6, 7));

/// A way to attach a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMethod {
    /// A tracepoint, through perf.
    Tracepoint,
    /// A tracepoint itself.
    RawTp,
    /// The same, with the types of its arguments.
    TpBtf,
    /// A kprobe at the function's entry: on ftrace's call, where there is one.
    Kprobe,
    /// A kprobe on the first instruction behind ftrace's call, with a breakpoint: each call of the function
    /// comes there, and never by ftrace.
    KprobeInt3,
    /// An fprobe on the function's entry.
    KprobeMulti,
    /// A kretprobe.
    Kretprobe {
        /// Instances that it holds ready: as many calls can be inside at once, 1 to 4096.
        maxactive: u32,
    },
    /// An fprobe on the function's return.
    KretprobeMulti,
    /// A trampoline at the function's entry.
    Fentry,
    /// A trampoline around the function.
    Fexit,
}

impl AttachMethod {
    /// Returns the attach type.
    pub fn attach(self) -> Attach {
        match self {
            AttachMethod::Tracepoint => Attach::Tracepoint,
            AttachMethod::RawTp => Attach::RawTp,
            AttachMethod::TpBtf => Attach::TpBtf,
            AttachMethod::Kprobe => Attach::Kprobe,
            AttachMethod::KprobeInt3 => Attach::KprobeInt3,
            AttachMethod::KprobeMulti => Attach::KprobeMulti,
            AttachMethod::Kretprobe { .. } => Attach::Kretprobe,
            AttachMethod::KretprobeMulti => Attach::KretprobeMulti,
            AttachMethod::Fentry => Attach::Fentry,
            AttachMethod::Fexit => Attach::Fexit,
        }
    }

    /// Returns true if the target is a tracepoint, `category:name`, and not a function.
    pub fn takes_tracepoints(self) -> bool {
        matches!(
            self,
            AttachMethod::Tracepoint | AttachMethod::RawTp | AttachMethod::TpBtf
        )
    }

    /// Kernel features that this needs, the most informative first.
    pub fn needs(self) -> Vec<Feature> {
        let needs = self.attach().own_needs();
        let further: &[Feature] = match self {
            AttachMethod::RawTp
            | AttachMethod::TpBtf
            | AttachMethod::Kprobe
            | AttachMethod::Kretprobe { .. } => &[Feature::Tracefs],
            // It is asked by a program whether the breakpoint is there.
            AttachMethod::KprobeInt3 => &[Feature::SyscallProgram],
            _ => &[],
        };
        [needs, further].concat()
    }

    /// Sets the target of a program before it is loaded, where the kernel requires that.
    pub(crate) fn aim(
        self,
        program: &mut OpenProgramMut<'_>,
        event: &str,
    ) -> libbpf_rs::Result<()> {
        let target = match self {
            AttachMethod::TpBtf | AttachMethod::Fentry | AttachMethod::Fexit => {
                Some(tracepoint_name(event))
            }
            _ => None,
        };
        self.attach().aim_at(program, target)
    }

    /// Explains why an aimed program can't be loaded, where the event is the cause.
    pub(crate) fn explain_load(self, event: &str, error: Error) -> Error {
        match error {
            // libbpf looks for the function, and says nothing where there is none.
            Error::Load { source, log, .. } if log.is_empty() || log.contains("kernel BTF") => {
                self.explain(event, source)
            }
            other => other,
        }
    }

    fn explain(self, event: &str, source: libbpf_rs::Error) -> Error {
        if self.takes_tracepoints() {
            kernel::explain_tracepoint(self.attach(), event, source)
        } else {
            kernel::explain(self.attach(), event, source)
        }
    }
}

/// Tools that some attach methods need and that are costly to get: made on first need, and kept for later.
#[derive(Default)]
pub(crate) struct Toolbox(Option<Tools>);

/// An attached program. Dropping it detaches the program.
pub(crate) struct MethodAttachment {
    method: AttachMethod,
    by: AttachPoint,
}

enum AttachPoint {
    Link(Link),
    /// The event is dropped behind the link, for one that is in use is not removed.
    Event(
        #[allow(dead_code, reason = "held for what its dropping does")] Link,
        Event,
    ),
    Inside(Inside),
}

impl MethodAttachment {
    /// Attaches a loaded program.
    pub(crate) fn attach(
        method: AttachMethod,
        program: &ProgramMut<'_>,
        event: &str,
        tools: &mut Toolbox,
    ) -> Result<Self> {
        let attach = method.attach();
        let of_link = |link: libbpf_rs::Result<Link>| {
            link.map(AttachPoint::Link)
                .map_err(|source| method.explain(event, source))
        };
        let of_event = |maxactive| -> Result<AttachPoint> {
            let (made, opened) = Event::open(event, maxactive)?
                .map_err(|error| method.explain(event, error.into()))?;
            let link =
                kernel::perf(program, opened).map_err(|source| method.explain(event, source));
            Ok(AttachPoint::Event(link?, made))
        };
        let by = match method {
            AttachMethod::Tracepoint => {
                let opened = kernel::open_tracepoint(attach, event)?;
                of_link(kernel::perf(program, opened))?
            }
            AttachMethod::RawTp => of_link(program.attach_raw_tracepoint(tracepoint_name(event)))?,
            AttachMethod::Kprobe => of_event(None)?,
            AttachMethod::Kretprobe { maxactive } => of_event(Some(maxactive))?,
            AttachMethod::KprobeInt3 => {
                let tools = match &mut tools.0 {
                    Some(tools) => tools,
                    none => none.insert(Tools::make()?),
                };
                AttachPoint::Inside(kernel::inside(attach, program, event, tools)?)
            }
            AttachMethod::KprobeMulti => {
                of_link(kernel::multi(program, &[event.to_owned()], false, false))?
            }
            AttachMethod::KretprobeMulti => {
                of_link(kernel::multi(program, &[event.to_owned()], true, false))?
            }
            AttachMethod::TpBtf | AttachMethod::Fentry | AttachMethod::Fexit => {
                of_link(program.attach_trace())?
            }
        };
        Ok(MethodAttachment { method, by })
    }

    /// Events that the kernel says were missed, since it was attached and, by the program itself, since it
    /// was loaded; `None` where it doesn't say.
    pub(crate) fn missed(&mut self, program: &ProgramMut<'_>) -> Result<Option<u64>> {
        let multi = matches!(
            self.method,
            AttachMethod::KprobeMulti | AttachMethod::KretprobeMulti
        );
        let by_mechanism = match &mut self.by {
            AttachPoint::Event(_, event) => event.missed().map_err(failed(
                self.method.attach().to_string(),
                "reading what it missed, in tracefs's kprobe_profile",
            ))?,
            AttachPoint::Link(_) if multi && !links_tell() => return Ok(None),
            AttachPoint::Link(link) => kernel::missed(link)?,
            AttachPoint::Inside(inside) => inside.missed()?,
        };
        let passed_over = RunStats::read(program)?.recursion_misses;
        Ok(Some(by_mechanism + passed_over))
    }
}

/// Returns true if this kernel reports the events that a link to many functions missed.
fn links_tell() -> bool {
    LinuxVersion::of_release(&feature::release()).is_some_and(|version| version >= LINKS_TELL)
}
