//! Ways to attach a program to an event, and drivers that make the events.
//!
//! An attach type belongs to one [`Driver`]: the same events with nothing attached are its baseline.
//! [`Probe`] holds the loaded programs of an attach type, one a [`Body`]; [`Events`] makes the events of a
//! driver and attaches programs to them. What they measure and what is not in the number stands at the
//! head of `bpf/probe.bpf.c` and `bpf/driver.bpf.c`.

mod body;
mod buffers;
mod counter;
mod driver;
mod fault;
mod foreign;
mod how;
mod kernel;
mod maps;
pub(crate) mod net;
mod probe;
mod routine;
mod stopwatch;
mod tally;
mod user;

use std::fmt;

use libbpf_rs::{Link, ProgramMut};

pub use body::Body;
pub use buffers::Taken;
pub use counter::{Counted, Counter, Work};
pub use driver::{Ask, Attached, Driven, Driver, Events, Trouble};
pub use foreign::Foreign;
pub use how::How;
pub(crate) use how::{Held, Toolbox};
pub use kernel::others::{attached_at, others};
pub use maps::Maps;
pub use probe::{Probe, Seen};
pub use tally::{Counts, Tally};

use crate::{
    error::{Error, Result},
    feature::Feature,
};

/// A way to attach a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Attach {
    /// A kprobe at the entry of a function, where ftrace has its call.
    Kprobe,
    /// A kprobe inside a function, by a breakpoint.
    KprobeInt3,
    /// A kprobe inside a function, by a jump that took the breakpoint's place.
    KprobeOptimised,
    /// An fprobe on one function.
    KprobeMulti,
    /// An fprobe on every function that can be traced.
    KprobeMultiAll,
    /// An fprobe on one function, its entry and its return.
    KprobeSession,
    /// A kretprobe at one function.
    Kretprobe,
    /// An fprobe on the return of one function.
    KretprobeMulti,
    /// A trampoline at the entry of a function.
    Fentry,
    /// A trampoline around a function, the program after it.
    Fexit,
    /// A trampoline around a function, the program before and after it.
    Fsession,
    /// Like fentry, by a link that could take many functions.
    FentryMulti,
    /// Like fexit, by a link that could take many functions.
    FexitMulti,
    /// Like fsession, by a link that could take many functions.
    FsessionMulti,
    /// A tracepoint, through perf.
    Tracepoint,
    /// A tracepoint, its own arguments.
    RawTp,
    /// A tracepoint, its own arguments with their types.
    TpBtf,
    /// A trampoline around a function, the program before it, which may answer in its stead.
    FmodRet,
    /// A tracepoint, through perf: that of `bpf_trace_printk`.
    TracepointPrintk,
    /// A tracepoint, its own arguments: that of `bpf_trace_printk`.
    RawTpPrintk,
    /// A tracepoint, its arguments with their types: that of `bpf_trace_printk`.
    TpBtfPrintk,
    /// A hook of security modules.
    Lsm,
    /// A trampoline that may answer for the call of a hook of security modules.
    FmodRetSecurity,
    /// A control group's outgoing packets.
    CgroupSkb,
    /// A network interface's outgoing packets.
    Tcx,
    /// Netfilter's hook for outgoing packets.
    Netfilter,
    /// A network interface's incoming packets, after the kernel has made its own structure of them.
    XdpGeneric,
    /// The same for packets of a veth that come as the kernel's own structure and must be converted.
    XdpNativeVethSkb,
    /// A network driver's incoming frames.
    XdpNative,
    /// A software event of perf: page faults, every one.
    PerfEvent,
    /// A uprobe on a `nop`.
    UprobeNop,
    /// A uprobe on a `nop` of five bytes.
    UprobeNop5,
    /// A uprobe on a `push`.
    UprobePush,
    /// A uprobe on a `ret`.
    UprobeRet,
    /// A uretprobe of a function that begins with a `nop`.
    UretprobeNop,
    /// A uretprobe of a function that begins with a `nop` of five bytes.
    UretprobeNop5,
    /// A uretprobe of a function that begins with a `push`.
    UretprobePush,
    /// A uretprobe of a function that is a `ret` alone.
    UretprobeRet,
    /// A uprobe on a `nop`, by a link that could take many places.
    UprobeMulti,
    /// A uretprobe of a function that begins with a `nop`, by such a link.
    UretprobeMulti,
    /// A uprobe and a uretprobe in one, on a `nop`.
    UprobeSession,
    /// A static probe of user space, on a `nop`.
    UsdtNop,
    /// A static probe of user space, on a `nop` of five bytes.
    UsdtNop5,
}

/// What is known of an attach type.
struct Known {
    name: &'static str,
    driver: Driver,
    kind: Kind,
    /// What tells most of it first.
    needs: &'static [Feature],
}

/// Kinds of programs: prefixes in `bpf/probe.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kprobe,
    KprobeAll,
    Uprobe,
    Usdt,
    Tp,
    RawTp,
    Tracing,
    Security,
    Lsm,
    PerfEvent,
    CgroupSkb,
    Tcx,
    Netfilter,
    Xdp,
}

impl Kind {
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Kind::Kprobe => "kprobe",
            Kind::KprobeAll => "kprobe_all",
            Kind::Uprobe => "uprobe",
            Kind::Usdt => "usdt",
            Kind::Tp => "tp",
            Kind::RawTp => "raw_tp",
            Kind::Tracing => "tracing",
            Kind::Security => "security",
            Kind::Lsm => "lsm",
            Kind::PerfEvent => "perf_event",
            Kind::CgroupSkb => "cgroup_skb",
            Kind::Tcx => "tcx",
            Kind::Netfilter => "netfilter",
            Kind::Xdp => "xdp",
        }
    }

    /// Whether its programs see packets, where there is no process and no stack to walk.
    pub(crate) fn sees_packets(self) -> bool {
        matches!(
            self,
            Kind::CgroupSkb | Kind::Tcx | Kind::Netfilter | Kind::Xdp
        )
    }
}

impl Attach {
    /// All of them, families together.
    pub const ALL: [Attach; 43] = [
        Attach::Kprobe,
        Attach::KprobeInt3,
        Attach::KprobeOptimised,
        Attach::KprobeMulti,
        Attach::KprobeMultiAll,
        Attach::KprobeSession,
        Attach::Kretprobe,
        Attach::KretprobeMulti,
        Attach::Fentry,
        Attach::Fexit,
        Attach::Fsession,
        Attach::FentryMulti,
        Attach::FexitMulti,
        Attach::FsessionMulti,
        Attach::Tracepoint,
        Attach::RawTp,
        Attach::TpBtf,
        Attach::FmodRet,
        Attach::TracepointPrintk,
        Attach::RawTpPrintk,
        Attach::TpBtfPrintk,
        Attach::Lsm,
        Attach::FmodRetSecurity,
        Attach::CgroupSkb,
        Attach::Tcx,
        Attach::Netfilter,
        Attach::XdpGeneric,
        Attach::XdpNativeVethSkb,
        Attach::XdpNative,
        Attach::PerfEvent,
        Attach::UprobeNop,
        Attach::UprobeNop5,
        Attach::UprobePush,
        Attach::UprobeRet,
        Attach::UretprobeNop,
        Attach::UretprobeNop5,
        Attach::UretprobePush,
        Attach::UretprobeRet,
        Attach::UprobeMulti,
        Attach::UretprobeMulti,
        Attach::UprobeSession,
        Attach::UsdtNop,
        Attach::UsdtNop5,
    ];

    /// As people know it, and as cases are named.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// Who makes its events.
    pub fn driver(self) -> Driver {
        self.known().driver
    }

    pub(crate) fn kind(self) -> Kind {
        self.known().kind
    }

    /// What the kernel must have, what tells most of it first.
    pub fn needs(self) -> Vec<Feature> {
        let known = self.known();
        [known.needs, known.driver.needs()].concat()
    }

    /// How often the program runs for an event.
    pub fn runs_per_event(self) -> u64 {
        match self {
            Attach::KprobeSession
            | Attach::Fsession
            | Attach::FsessionMulti
            | Attach::UprobeSession => 2,
            _ => 1,
        }
    }

    /// Whether its programs are called for what others do as well, and tell it apart by themselves.
    pub fn sees_others(self) -> bool {
        matches!(self.kind(), Kind::KprobeAll | Kind::Lsm | Kind::Security)
    }

    /// Whether its programs can have this body.
    pub fn takes(self, body: Body) -> bool {
        body != Body::Stack || !self.kind().sees_packets()
    }

    fn known(self) -> Known {
        use Driver as D;
        let of = |name, driver, kind, needs| Known {
            name,
            driver,
            kind,
            needs,
        };
        match self {
            Attach::Kprobe => of("kprobe", D::Helper, Kind::Kprobe, &[Feature::Kprobe]),
            Attach::KprobeInt3 => of("kprobe-int3", D::Helper, Kind::Kprobe, &[Feature::Kprobe]),
            Attach::KprobeOptimised => of(
                "kprobe-optimised",
                D::Helper,
                Kind::Kprobe,
                &[Feature::Kprobe],
            ),
            Attach::KprobeMulti => of(
                "kprobe.multi",
                D::Helper,
                Kind::Kprobe,
                &[Feature::KprobeMulti],
            ),
            Attach::KprobeMultiAll => of(
                "kprobe.multi-all",
                D::Helper,
                Kind::KprobeAll,
                // Where all of them are listed.
                &[Feature::KprobeMulti, Feature::Tracefs],
            ),
            Attach::KprobeSession => of(
                "kprobe.session",
                D::Helper,
                Kind::Kprobe,
                &[Feature::KprobeSession],
            ),
            Attach::Kretprobe => of("kretprobe", D::Helper, Kind::Kprobe, &[Feature::Kprobe]),
            Attach::KretprobeMulti => of(
                "kretprobe.multi",
                D::Helper,
                Kind::Kprobe,
                &[Feature::KprobeMulti],
            ),
            Attach::Fentry => of("fentry", D::Helper, Kind::Tracing, &[Feature::Fentry]),
            Attach::Fexit => of("fexit", D::Helper, Kind::Tracing, &[Feature::Fexit]),
            Attach::Fsession => of("fsession", D::Helper, Kind::Tracing, &[Feature::Fsession]),
            Attach::FentryMulti => of(
                "fentry.multi",
                D::Helper,
                Kind::Tracing,
                &[Feature::FentryMulti],
            ),
            Attach::FexitMulti => of(
                "fexit.multi",
                D::Helper,
                Kind::Tracing,
                &[Feature::FexitMulti],
            ),
            Attach::FsessionMulti => of(
                "fsession.multi",
                D::Helper,
                Kind::Tracing,
                &[Feature::FsessionMulti],
            ),
            Attach::Tracepoint => of(
                "tracepoint",
                D::Kfunc,
                Kind::Tp,
                &[Feature::Tracepoint, Feature::Tracefs],
            ),
            Attach::RawTp => of("raw_tp", D::Kfunc, Kind::RawTp, &[Feature::RawTracepoint]),
            Attach::TpBtf => of("tp_btf", D::Kfunc, Kind::Tracing, &[Feature::TpBtf]),
            Attach::FmodRet => of("fmod_ret", D::Kfunc, Kind::Tracing, &[Feature::FmodRet]),
            Attach::TracepointPrintk => of(
                "tracepoint-printk",
                D::Printk,
                Kind::Tp,
                &[Feature::Tracepoint, Feature::Tracefs],
            ),
            Attach::RawTpPrintk => of(
                "raw_tp-printk",
                D::Printk,
                Kind::RawTp,
                &[Feature::RawTracepoint],
            ),
            Attach::TpBtfPrintk => of("tp_btf-printk", D::Printk, Kind::Tracing, &[Feature::TpBtf]),
            Attach::Lsm => of("lsm", D::SysBpf, Kind::Lsm, &[Feature::Lsm]),
            Attach::FmodRetSecurity => of(
                "fmod_ret-security",
                D::SysBpf,
                Kind::Security,
                &[Feature::FmodRet],
            ),
            Attach::CgroupSkb => of(
                "cgroup_skb",
                D::Sendto,
                Kind::CgroupSkb,
                &[Feature::CgroupSkb],
            ),
            Attach::Tcx => of("tcx", D::Sendto, Kind::Tcx, &[Feature::Tcx]),
            Attach::Netfilter => of(
                "netfilter",
                D::Sendto,
                Kind::Netfilter,
                &[Feature::Netfilter],
            ),
            Attach::XdpGeneric => of("xdp-generic", D::Sendto, Kind::Xdp, &[Feature::XdpLink]),
            Attach::XdpNativeVethSkb => of(
                "xdp-native-veth-skb",
                D::Sendto,
                Kind::Xdp,
                &[Feature::XdpLink],
            ),
            Attach::XdpNative => of("xdp-native", D::Frames, Kind::Xdp, &[Feature::XdpLink]),
            Attach::PerfEvent => of(
                "perf_event",
                D::PageFault,
                Kind::PerfEvent,
                &[Feature::PerfEvent],
            ),
            Attach::UprobeNop => of("uprobe-nop", D::UserNop, Kind::Uprobe, &[Feature::Uprobe]),
            Attach::UprobeNop5 => of("uprobe-nop5", D::UserNop5, Kind::Uprobe, &[Feature::Uprobe]),
            Attach::UprobePush => of("uprobe-push", D::UserPush, Kind::Uprobe, &[Feature::Uprobe]),
            Attach::UprobeRet => of("uprobe-ret", D::UserRet, Kind::Uprobe, &[Feature::Uprobe]),
            Attach::UretprobeNop => of(
                "uretprobe-nop",
                D::UserNop,
                Kind::Uprobe,
                &[Feature::Uprobe],
            ),
            Attach::UretprobeNop5 => of(
                "uretprobe-nop5",
                D::UserNop5,
                Kind::Uprobe,
                &[Feature::Uprobe],
            ),
            Attach::UretprobePush => of(
                "uretprobe-push",
                D::UserPush,
                Kind::Uprobe,
                &[Feature::Uprobe],
            ),
            Attach::UretprobeRet => of(
                "uretprobe-ret",
                D::UserRet,
                Kind::Uprobe,
                &[Feature::Uprobe],
            ),
            Attach::UprobeMulti => of(
                "uprobe.multi",
                D::UserNop,
                Kind::Uprobe,
                &[Feature::UprobeMulti],
            ),
            Attach::UretprobeMulti => of(
                "uretprobe.multi",
                D::UserNop,
                Kind::Uprobe,
                &[Feature::UprobeMulti],
            ),
            Attach::UprobeSession => of(
                "uprobe.session",
                D::UserNop,
                Kind::Uprobe,
                &[Feature::UprobeSession],
            ),
            Attach::UsdtNop => of("usdt-nop", D::UserNop, Kind::Usdt, &[Feature::Uprobe]),
            Attach::UsdtNop5 => of("usdt-nop5", D::UserNop5, Kind::Usdt, &[Feature::Uprobe]),
        }
    }
}

impl fmt::Display for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Attaches a program to a tracepoint, `category:name`.
pub(crate) fn tracepoint(program: &ProgramMut<'_>, event: &str) -> Result<Link> {
    let opened = kernel::open_tracepoint(Attach::Tracepoint, event)?;
    kernel::perf(program, opened).map_err(|source| Error::Attach {
        what: event.to_owned(),
        action: "attaching to the tracepoint",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_name_of_its_own() {
        let mut names: Vec<_> = Attach::ALL.map(Attach::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Attach::ALL.len());
        for (place, attach) in Attach::ALL.into_iter().enumerate() {
            assert_eq!(attach as usize, place, "{attach}");
        }
    }
}
