//! Kinds of hooks, and what is known of each.

use serde::{Deserialize, Serialize};

use super::root::Root;
use crate::{
    attach::Attach,
    feature::{Feature, Feature as F},
    table::table,
};

table! {
/// A kind of hook at which a program can be attached.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookKind: KindInfo {
    /// A kprobe at a function's entry, or behind it.
    Kprobe = at_function("kprobe", &[F::Kprobe], Root::Entry);
    /// A kretprobe.
    Kretprobe = at_function("kretprobe", &[F::Kprobe], Root::Return);
    /// An fprobe on the entries of functions.
    KprobeMulti = at_function("kprobe.multi", &[F::KprobeMulti], Root::Entry);
    /// An fprobe on the returns of functions.
    KretprobeMulti = at_function("kretprobe.multi", &[F::KprobeMulti], Root::Return);
    /// An fprobe on both: the program runs twice for each call.
    KprobeSession = at_function("kprobe.session", &[F::KprobeSession], Root::EntryAndReturn);
    /// A kprobe at the function of a system call.
    Ksyscall = at("ksyscall", "SYSCALL", &[F::Kprobe], Root::Entry);
    /// A kretprobe at the function of a system call.
    Kretsyscall = at("kretsyscall", "SYSCALL", &[F::Kprobe], Root::Return);
    /// A trampoline at a function's entry.
    Fentry = by_trampoline("fentry", &[F::Fentry]);
    /// A trampoline around a function, the program after it.
    Fexit = by_trampoline("fexit", &[F::Fexit]);
    /// A trampoline around a function, the program before it, which may answer in its stead.
    FmodRet = by_trampoline("fmod_ret", &[F::FmodRet]);
    /// A trampoline around a function, the program before and after it.
    Fsession = by_trampoline("fsession", &[F::Fsession]);
    /// A tracepoint, through perf.
    Tracepoint = at("tracepoint", "CATEGORY:NAME", &[F::Tracepoint, F::Tracefs], Root::TRACEPOINT);
    /// A tracepoint, with its own arguments.
    RawTracepoint = at("raw_tp", "TRACEPOINT", &[F::RawTracepoint], Root::TRACEPOINT);
    /// A tracepoint, with its own arguments and their types.
    TpBtf = at("tp_btf", "TRACEPOINT", &[F::TpBtf], Root::TRACEPOINT);
    /// A hook of security modules.
    Lsm = at("lsm", "HOOK", &[F::Lsm], Root::Entry);
    /// A uprobe.
    Uprobe = at("uprobe", "PATH:FUNCTION", &[F::Uprobe], Root::Visit);
    /// A uretprobe.
    Uretprobe = at("uretprobe", "PATH:FUNCTION", &[F::Uprobe], Root::Visit);
    /// A link to many uprobes.
    UprobeMulti = at("uprobe.multi", "PATH:FUNCTION", &[F::UprobeMulti], Root::Visit);
    /// A link to many uretprobes.
    UretprobeMulti = at("uretprobe.multi", "PATH:FUNCTION", &[F::UprobeMulti], Root::Visit);
    /// A link to many functions' entries and returns: the program runs twice for each call.
    UprobeSession = at("uprobe.session", "PATH:FUNCTION", &[F::UprobeSession], Root::Visit);
    /// A marker in a program (USDT).
    Usdt = at("usdt", "PATH:PROVIDER:NAME", &[F::Uprobe], Root::Visit);
    /// An event of perf.
    PerfEvent = at("perf_event", "EVENT", &[F::PerfEvent], Root::PERF_EVENT);
    /// An iterator: its program runs when it is read.
    Iter = at("iter", "ITERATOR", &[], Root::ITER);
    /// A control group's sockets, devices, system settings and socket options.
    Cgroup = at("cgroup", "GROUP", &[F::CgroupSkb], Root::CGROUP);
    /// A control group's packets.
    CgroupSkb = at("cgroup_skb", "GROUP", &[F::CgroupSkb], Root::CGROUP);
    /// The choice of a socket for a packet.
    SkLookup = at("sk_lookup", "NAMESPACE", &[], Root::SK_LOOKUP);
    /// A hook of netfilter.
    Netfilter = at("netfilter", "FAMILY:HOOK", &[F::Netfilter], Root::NETFILTER);
    /// A device's received packets: in its driver where that runs such programs, else behind it.
    Xdp = at("xdp", "DEVICE", &[F::XdpLink], Root::XDP);
    /// A member of a struct of functions that the kernel calls: a scheduler's, a congestion control's.
    StructOps = at("struct_ops", "STRUCT.MEMBER", &[], Root::Caller);
}
}

/// Two families of hooks. An object that has programs of both for one event attaches those of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Needs the kernel's types.
    Typed,
    /// Needs none.
    Untyped,
}

pub(super) struct KindInfo {
    name: &'static str,
    /// Form of a target.
    form: &'static str,
    needs: &'static [Feature],
    root: Root,
}

const fn at(
    name: &'static str,
    form: &'static str,
    needs: &'static [Feature],
    root: Root,
) -> KindInfo {
    KindInfo {
        name,
        form,
        needs,
        root,
    }
}

const fn at_function(name: &'static str, needs: &'static [Feature], root: Root) -> KindInfo {
    at(name, "FUNCTION", needs, root)
}

/// A trampoline is reached from the function's entry, also where its programs run after the function.
const fn by_trampoline(name: &'static str, needs: &'static [Feature]) -> KindInfo {
    at_function(name, needs, Root::Entry)
}

impl HookKind {
    /// The kernel functions by which a hook of this kind reaches its programs.
    pub fn root(self) -> Root {
        self.known().root
    }

    /// Kernel features that this needs.
    pub fn needs(self) -> &'static [Feature] {
        self.known().needs
    }

    /// Form of a target, such as `CATEGORY:NAME`.
    pub fn form(self) -> &'static str {
        self.known().form
    }

    /// True if the hook is in a file: of a process, not of the kernel.
    pub fn is_in_file(self) -> bool {
        self.form().starts_with("PATH:")
    }

    pub(super) fn family(self) -> Family {
        match self {
            HookKind::Fentry
            | HookKind::Fexit
            | HookKind::FmodRet
            | HookKind::Fsession
            | HookKind::TpBtf
            | HookKind::Lsm => Family::Typed,
            _ => Family::Untyped,
        }
    }

    /// Returns true if programs are loaded for one target.
    pub(super) fn is_loaded_for_target(self) -> bool {
        self.family() == Family::Typed
    }

    pub(super) fn is_tracepoint(self) -> bool {
        matches!(
            self,
            HookKind::Tracepoint | HookKind::RawTracepoint | HookKind::TpBtf
        )
    }

    pub(super) fn is_multi(self) -> bool {
        matches!(
            self,
            HookKind::KprobeMulti | HookKind::KretprobeMulti | HookKind::KprobeSession
        )
    }

    /// The attach type whose words explain why a function does not take a program.
    pub(super) fn attach(self) -> Attach {
        match self {
            HookKind::Kprobe | HookKind::Ksyscall => Attach::Kprobe,
            HookKind::Kretprobe | HookKind::Kretsyscall => Attach::Kretprobe,
            HookKind::KprobeMulti => Attach::KprobeMulti,
            HookKind::KretprobeMulti => Attach::KretprobeMulti,
            HookKind::KprobeSession => Attach::KprobeSession,
            HookKind::Fexit => Attach::Fexit,
            HookKind::FmodRet => Attach::FmodRet,
            HookKind::Lsm => Attach::Lsm,
            HookKind::Tracepoint => Attach::Tracepoint,
            HookKind::RawTracepoint => Attach::RawTp,
            HookKind::TpBtf => Attach::TpBtf,
            _ => Attach::Fentry,
        }
    }
}
