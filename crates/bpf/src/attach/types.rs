//! The table of attach types: name, driver of the events, required features, and the attributes that the kernel
//! needs at load.

#![allow(unsafe_code)]

use libbpf_rs::{AsRawLibbpf as _, OpenProgramMut, ProgramType, libbpf_sys as sys};

use super::{
    Body, Driver, Driver as D,
    kernel::{KPROBE_OPTIMISATION, tracepoint_name},
};
use crate::{
    Space,
    feature::{Feature, Feature as F, TRACE_FENTRY_MULTI, TRACE_FEXIT_MULTI, TRACE_FSESSION_MULTI},
    table::table,
};

table! {
/// A way to attach a program.
pub enum Attach: AttachInfo {
    /// A kprobe at the entry of a function, where ftrace has its call.
    Kprobe = attach_info("kprobe", D::Helper, ProgramKind::Kprobe, &[F::Kprobe]);
    /// A kprobe inside a function, by a breakpoint.
    KprobeInt3 = attach_info("kprobe-int3", D::Helper, ProgramKind::Kprobe, &[F::Kprobe]);
    /// A kprobe inside a function, by a jump that took the breakpoint's place.
    KprobeOptimised = attach_info("kprobe-optimised", D::Helper, ProgramKind::Kprobe, &[F::Kprobe]);
    /// An fprobe on one function.
    KprobeMulti = attach_info("kprobe.multi", D::Helper, ProgramKind::Kprobe, &[F::KprobeMulti])
        .expects(sys::BPF_TRACE_KPROBE_MULTI);
    /// An fprobe on every function that can be traced.
    // Tracefs is where all of them are listed.
    KprobeMultiAll = attach_info("kprobe.multi-all", D::Helper, ProgramKind::KprobeAll, &[F::KprobeMulti, F::Tracefs])
        .expects(sys::BPF_TRACE_KPROBE_MULTI);
    /// An fprobe on one function, its entry and its return.
    KprobeSession = attach_info("kprobe.session", D::Helper, ProgramKind::Kprobe, &[F::KprobeSession])
        .expects(sys::BPF_TRACE_KPROBE_SESSION).runs_twice();
    /// A kretprobe at one function.
    Kretprobe = attach_info("kretprobe", D::Helper, ProgramKind::Kprobe, &[F::Kprobe]).at_return();
    /// An fprobe on the return of one function.
    KretprobeMulti = attach_info("kretprobe.multi", D::Helper, ProgramKind::Kprobe, &[F::KprobeMulti])
        .expects(sys::BPF_TRACE_KPROBE_MULTI).at_return();
    /// A trampoline at the entry of a function.
    Fentry = attach_info("fentry", D::Helper, ProgramKind::Tracing, &[F::Fentry]).expects(sys::BPF_TRACE_FENTRY);
    /// A trampoline around a function, the program after it.
    Fexit = attach_info("fexit", D::Helper, ProgramKind::Tracing, &[F::Fexit]).expects(sys::BPF_TRACE_FEXIT);
    /// A trampoline around a function, the program before and after it.
    Fsession = attach_info("fsession", D::Helper, ProgramKind::Tracing, &[F::Fsession])
        .expects(sys::BPF_TRACE_FSESSION).runs_twice();
    /// Like fentry, by a link that could take many functions.
    FentryMulti = attach_info("fentry.multi", D::Helper, ProgramKind::Tracing, &[F::FentryMulti]).expects(TRACE_FENTRY_MULTI);
    /// Like fexit, by a link that could take many functions.
    FexitMulti = attach_info("fexit.multi", D::Helper, ProgramKind::Tracing, &[F::FexitMulti]).expects(TRACE_FEXIT_MULTI);
    /// Like fsession, by a link that could take many functions.
    FsessionMulti = attach_info("fsession.multi", D::Helper, ProgramKind::Tracing, &[F::FsessionMulti])
        .expects(TRACE_FSESSION_MULTI).runs_twice();
    /// A tracepoint, through perf.
    Tracepoint = attach_info("tracepoint", D::Kfunc, ProgramKind::Tp, &[F::Tracepoint, F::Tracefs]);
    /// A tracepoint, its own arguments.
    RawTp = attach_info("raw_tp", D::Kfunc, ProgramKind::RawTp, &[F::RawTracepoint]);
    /// A tracepoint, its own arguments with their types.
    TpBtf = attach_info("tp_btf", D::Kfunc, ProgramKind::Tracing, &[F::TpBtf]).expects(sys::BPF_TRACE_RAW_TP);
    /// A trampoline around a function, the program before it, which may answer in its stead.
    FmodRet = attach_info("fmod_ret", D::Kfunc, ProgramKind::Tracing, &[F::FmodRet]).expects(sys::BPF_MODIFY_RETURN);
    /// A tracepoint, through perf: that of `bpf_trace_printk`.
    TracepointPrintk = attach_info("tracepoint-printk", D::Printk, ProgramKind::Tp, &[F::Tracepoint, F::Tracefs]);
    /// A tracepoint, its own arguments: that of `bpf_trace_printk`.
    RawTpPrintk = attach_info("raw_tp-printk", D::Printk, ProgramKind::RawTp, &[F::RawTracepoint]);
    /// A tracepoint, its arguments with their types: that of `bpf_trace_printk`.
    TpBtfPrintk = attach_info("tp_btf-printk", D::Printk, ProgramKind::Tracing, &[F::TpBtf]).expects(sys::BPF_TRACE_RAW_TP);
    /// A hook of security modules.
    Lsm = attach_info("lsm", D::SysBpf, ProgramKind::Lsm, &[F::Lsm]);
    /// A trampoline that may answer for the call of a hook of security modules.
    FmodRetSecurity = attach_info("fmod_ret-security", D::SysBpf, ProgramKind::Security, &[F::FmodRet])
        .expects(sys::BPF_MODIFY_RETURN);
    /// A control group's outgoing packets.
    CgroupSkb = attach_info("cgroup_skb", D::Sendto, ProgramKind::CgroupSkb, &[F::CgroupSkb]);
    /// A network interface's outgoing packets.
    Tcx = attach_info("tcx", D::Sendto, ProgramKind::Tcx, &[F::Tcx]);
    /// Netfilter's hook for outgoing packets.
    Netfilter = attach_info("netfilter", D::Sendto, ProgramKind::Netfilter, &[F::Netfilter]);
    /// A network interface's incoming packets, after the kernel has made its own structure of them.
    XdpGeneric = attach_info("xdp-generic", D::Sendto, ProgramKind::Xdp, &[F::XdpLink]);
    /// The same for packets of a veth that come as the kernel's own structure and must be converted.
    XdpNativeVethSkb = attach_info("xdp-native-veth-skb", D::Sendto, ProgramKind::Xdp, &[F::XdpLink]);
    /// A network driver's incoming frames.
    XdpNative = attach_info("xdp-native", D::Frames, ProgramKind::Xdp, &[F::XdpLink]);
    /// A software event of perf: page faults, every one.
    PerfEvent = attach_info("perf_event", D::PageFault, ProgramKind::PerfEvent, &[F::PerfEvent]);
    /// A uprobe on a `nop`.
    UprobeNop = attach_info("uprobe-nop", D::UserNop, ProgramKind::Uprobe, &[F::Uprobe]);
    /// A uprobe on a `nop` of five bytes.
    UprobeNop5 = attach_info("uprobe-nop5", D::UserNop5, ProgramKind::Uprobe, &[F::Uprobe]);
    /// A uprobe on a `nop` of ten bytes.
    UprobeNop10 = attach_info("uprobe-nop10", D::UserNop10, ProgramKind::Uprobe, &[F::UprobeNop10]);
    /// A uprobe on an `endbr64`, with which functions begin where a compiler guards indirect calls.
    UprobeEndbr64 = attach_info("uprobe-endbr64", D::UserEndbr64, ProgramKind::Uprobe, &[F::Uprobe]);
    /// A uprobe on a `push`.
    UprobePush = attach_info("uprobe-push", D::UserPush, ProgramKind::Uprobe, &[F::Uprobe]);
    /// A uprobe on a `ret`.
    UprobeRet = attach_info("uprobe-ret", D::UserRet, ProgramKind::Uprobe, &[F::Uprobe]);
    /// A uretprobe of a function that begins with a `nop`.
    UretprobeNop = attach_info("uretprobe-nop", D::UserNop, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uretprobe of a function that begins with a `nop` of five bytes.
    UretprobeNop5 = attach_info("uretprobe-nop5", D::UserNop5, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uretprobe of a function that begins with a `nop` of ten bytes.
    UretprobeNop10 = attach_info("uretprobe-nop10", D::UserNop10, ProgramKind::Uprobe, &[F::UprobeNop10]).at_return();
    /// A uretprobe of a function that begins with an `endbr64`.
    UretprobeEndbr64 = attach_info("uretprobe-endbr64", D::UserEndbr64, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uretprobe of a function that begins with a `push`.
    UretprobePush = attach_info("uretprobe-push", D::UserPush, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uretprobe of a function that is a `ret` alone.
    UretprobeRet = attach_info("uretprobe-ret", D::UserRet, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uretprobe of a function that leaves by a jump to another one.
    UretprobeTail = attach_info("uretprobe-tail", D::UserTail, ProgramKind::Uprobe, &[F::Uprobe]).at_return();
    /// A uprobe on a `nop`, by a link that could take many places.
    UprobeMulti = attach_info("uprobe.multi", D::UserNop, ProgramKind::Uprobe, &[F::UprobeMulti])
        .expects(sys::BPF_TRACE_UPROBE_MULTI);
    /// The same on a `nop` of ten bytes.
    UprobeMultiNop10 = attach_info("uprobe.multi-nop10", D::UserNop10, ProgramKind::Uprobe, &[F::UprobeMulti, F::UprobeNop10])
        .expects(sys::BPF_TRACE_UPROBE_MULTI);
    /// A uretprobe of a function that begins with a `nop`, by such a link.
    UretprobeMulti = attach_info("uretprobe.multi", D::UserNop, ProgramKind::Uprobe, &[F::UprobeMulti])
        .expects(sys::BPF_TRACE_UPROBE_MULTI).at_return();
    /// A uprobe and a uretprobe in one, on a `nop`.
    UprobeSession = attach_info("uprobe.session", D::UserNop, ProgramKind::Uprobe, &[F::UprobeSession])
        .expects(sys::BPF_TRACE_UPROBE_SESSION).runs_twice();
    /// A static probe of user space, on a `nop`.
    UsdtNop = attach_info("usdt-nop", D::UserNop, ProgramKind::Usdt, &[F::Uprobe]);
    /// A static probe of user space, on a `nop` of five bytes.
    UsdtNop5 = attach_info("usdt-nop5", D::UserNop5, ProgramKind::Usdt, &[F::Uprobe]);
    /// A static probe of user space, on a `nop` of ten bytes.
    UsdtNop10 = attach_info("usdt-nop10", D::UserNop10, ProgramKind::Usdt, &[F::UprobeNop10]);
    /// A program in the process itself, on a `nop`.
    UserUprobeNop = attach_info("user-uprobe-nop", D::UserNop, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// A program in the process itself, on a `nop` of five bytes.
    UserUprobeNop5 = attach_info("user-uprobe-nop5", D::UserNop5, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// A program in the process itself, on a `nop` of ten bytes.
    UserUprobeNop10 = attach_info("user-uprobe-nop10", D::UserNop10, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// A program in the process itself, on an `endbr64`.
    UserUprobeEndbr64 = attach_info("user-uprobe-endbr64", D::UserEndbr64, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// A program in the process itself, on a `push`.
    UserUprobePush = attach_info("user-uprobe-push", D::UserPush, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// A program in the process itself, on a `ret`.
    UserUprobeRet = attach_info("user-uprobe-ret", D::UserRet, ProgramKind::Uprobe, &[F::UserProbe]).in_process();
    /// The same at the return of a function that begins with a `nop`.
    UserUretprobeNop = attach_info("user-uretprobe-nop", D::UserNop, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that begins with a `nop` of five bytes.
    UserUretprobeNop5 = attach_info("user-uretprobe-nop5", D::UserNop5, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that begins with a `nop` of ten bytes.
    UserUretprobeNop10 = attach_info("user-uretprobe-nop10", D::UserNop10, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that begins with an `endbr64`.
    UserUretprobeEndbr64 = attach_info("user-uretprobe-endbr64", D::UserEndbr64, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that begins with a `push`.
    UserUretprobePush = attach_info("user-uretprobe-push", D::UserPush, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that is a `ret` alone.
    UserUretprobeRet = attach_info("user-uretprobe-ret", D::UserRet, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// The same at the return of a function that leaves by a jump to another one.
    UserUretprobeTail = attach_info("user-uretprobe-tail", D::UserTail, ProgramKind::Uprobe, &[F::UserProbe]).at_return().in_process();
    /// A program in the process itself, at a static probe on a `nop`.
    UserUsdtNop = attach_info("user-usdt-nop", D::UserNop, ProgramKind::Usdt, &[F::UserProbe]).in_process();
    /// A program in the process itself, at a static probe on a `nop` of five bytes.
    UserUsdtNop5 = attach_info("user-usdt-nop5", D::UserNop5, ProgramKind::Usdt, &[F::UserProbe]).in_process();
    /// A program in the process itself, at a static probe on a `nop` of ten bytes.
    UserUsdtNop10 = attach_info("user-usdt-nop10", D::UserNop10, ProgramKind::Usdt, &[F::UserProbe]).in_process();
}
}

/// Facts about an attach type.
struct AttachInfo {
    name: &'static str,
    driver: Driver,
    kind: ProgramKind,
    /// The most telling first.
    needs: &'static [Feature],
    /// The attach type that the kernel wants when it loads the program; 0 where it follows from the type of program.
    expected: sys::bpf_attach_type,
    at_return: bool,
    runs: u64,
    space: Space,
}

const fn attach_info(
    name: &'static str,
    driver: Driver,
    kind: ProgramKind,
    needs: &'static [Feature],
) -> AttachInfo {
    AttachInfo {
        name,
        driver,
        kind,
        needs,
        expected: 0,
        at_return: false,
        runs: 1,
        space: Space::Kernel,
    }
}

impl AttachInfo {
    const fn expects(self, expected: sys::bpf_attach_type) -> Self {
        AttachInfo { expected, ..self }
    }

    const fn at_return(self) -> Self {
        AttachInfo {
            at_return: true,
            ..self
        }
    }

    const fn runs_twice(self) -> Self {
        AttachInfo { runs: 2, ..self }
    }

    const fn in_process(self) -> Self {
        AttachInfo {
            space: Space::User,
            ..self
        }
    }
}

table! {
/// Kinds of programs; their names are prefixes in `bpf/probe.bpf.c`.
pub(crate) enum ProgramKind: ProgramKindInfo {
    Kprobe = of_processes("kprobe");
    KprobeAll = of_processes("kprobe_all");
    Uprobe = of_processes("uprobe");
    Usdt = of_processes("usdt");
    Tp = of_processes("tp");
    RawTp = of_processes("raw_tp");
    Tracing = of_processes("tracing");
    Security = of_processes("security");
    Lsm = of_processes("lsm");
    PerfEvent = of_processes("perf_event");
    CgroupSkb = of_packets("cgroup_skb");
    Tcx = of_packets("tcx");
    Netfilter = of_packets("netfilter");
    Xdp = of_packets("xdp");
}
}

/// Facts about a kind of programs.
struct ProgramKindInfo {
    name: &'static str,
    /// True if they see packets, where there is no process and no stack to walk.
    packets: bool,
}

const fn of_processes(name: &'static str) -> ProgramKindInfo {
    ProgramKindInfo {
        name,
        packets: false,
    }
}

const fn of_packets(name: &'static str) -> ProgramKindInfo {
    ProgramKindInfo {
        name,
        packets: true,
    }
}

impl Attach {
    /// Who makes its events.
    pub fn driver(self) -> Driver {
        self.known().driver
    }

    pub(crate) fn kind(self) -> ProgramKind {
        self.known().kind
    }

    /// Kernel features that this needs, the most informative first.
    pub fn needs(self) -> Vec<Feature> {
        let info = self.known();
        [info.needs, info.driver.needs()].concat()
    }

    /// The same without what its driver needs.
    pub(crate) fn own_needs(self) -> &'static [Feature] {
        self.known().needs
    }

    /// The sysctl that is changed while it is attached, and restored with it. Who may be killed meanwhile restores it
    /// then.
    pub fn changes(self) -> Option<&'static str> {
        matches!(self, Attach::KprobeInt3 | Attach::KprobeOptimised).then_some(KPROBE_OPTIMISATION)
    }

    /// Runs of the program for each event.
    pub fn runs_per_event(self) -> u64 {
        self.known().runs
    }

    /// Returns true if the program runs at the return of a function.
    pub(crate) fn at_return(self) -> bool {
        self.known().at_return
    }

    /// The space that its programs run in.
    pub fn space(self) -> Space {
        self.known().space
    }

    /// The attach type that the kernel wants when it loads the program; 0 where it follows from the type of program.
    pub(crate) fn expected(self) -> sys::bpf_attach_type {
        self.known().expected
    }

    /// Returns true if its programs also run for events of other processes, and filter those out themselves.
    pub fn sees_others(self) -> bool {
        matches!(
            self.kind(),
            ProgramKind::KprobeAll | ProgramKind::Lsm | ProgramKind::Security
        )
    }

    /// Explains why its programs can't have this body on any kernel; `None` if they can.
    pub fn refuses(self, body: Body) -> Option<&'static str> {
        match body {
            Body::Stack if self.sees_packets() => {
                Some("no kernel offers the stack helper to programs on packets")
            }
            Body::RingbufWakeup if self.space() == Space::User => Some(
                "not measured: the ring of a process is polled, so no program wakes its reader",
            ),
            _ => None,
        }
    }

    /// Returns true if its programs see packets, where there is no process.
    pub(super) fn sees_packets(self) -> bool {
        self.kind().known().packets
    }

    /// Prepares a program that is not loaded yet for being attached in this way to events of its driver.
    pub fn aim(self, program: &mut OpenProgramMut<'_>) -> libbpf_rs::Result<()> {
        let called = self.driver().called();
        let target = match self.kind() {
            ProgramKind::Tracing if self.expected() == sys::BPF_TRACE_RAW_TP => called
                .and_then(|called| called.tracepoint)
                .map(tracepoint_name),
            ProgramKind::Tracing | ProgramKind::Security => {
                called.map(|called| called.functions[0])
            }
            ProgramKind::Lsm => Some("bpf"),
            _ => None,
        };
        self.aim_at(program, target)
    }

    /// Prepares a program that is not loaded yet for being attached in this way to something in the kernel's BTF,
    /// where the kernel wants to know that at load time.
    pub(crate) fn aim_at(
        self,
        program: &mut OpenProgramMut<'_>,
        target: Option<&str>,
    ) -> libbpf_rs::Result<()> {
        if self.expected() != 0 {
            let program = program.as_libbpf_object().as_ptr();
            // SAFETY: the program is open, and not loaded yet. libbpf-rs has no names for the newest types.
            let answer =
                unsafe { sys::bpf_program__set_expected_attach_type(program, self.expected()) };
            if answer < 0 {
                return Err(libbpf_rs::Error::from_raw_os_error(-answer));
            }
        }
        match self {
            // Which functions is said by the link alone. libbpf insists on one by the name of the section,
            // which it forgets when the type changes.
            Attach::FentryMulti | Attach::FexitMulti | Attach::FsessionMulti => {
                program.set_prog_type(ProgramType::Unspec);
                program.set_prog_type(ProgramType::Tracing);
                Ok(())
            }
            _ if target.is_some() => program.set_attach_target(0, target.map(str::to_owned)),
            _ => Ok(()),
        }
    }
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
    }
}
