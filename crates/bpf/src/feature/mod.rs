//! Kernel features that BPF programs need to load and attach, each with its version and its kernel option. The
//! kernel is asked for each; nothing is guessed from its version.
//!
//! After the feature probes of cilium/ebpf: each feature names the version that brought it, what is missing
//! has a reason, and on a kernel that should have it a test fails (`tests/features.rs`). Versions and
//! commits are those of <https://docs.ebpf.io> and of the kernel's history.

pub(crate) mod kernel;
mod missing;
mod probe;

use std::sync::OnceLock;

pub(crate) use missing::release;
pub use missing::{LinuxVersion, MissingFeature, MissingReason};
pub(crate) use probe::{TRACE_FENTRY_MULTI, TRACE_FEXIT_MULTI, TRACE_FSESSION_MULTI, btf_number};

use crate::{
    error::{Error, Result},
    table::table,
};

table! {
/// Something that a kernel has or lacks, in the order of `bpfcost check --features`. Above each, the commit that
/// brought it.
pub enum Feature: FeatureInfo {
    /// Types of the kernel in `/sys/kernel/btf/vmlinux`.
    // 341dfcf8d78e: sysfs exports it, 5.4.
    Btf = with("BTF", (5, 4), "CONFIG_DEBUG_INFO_BTF");
    /// XDP programs that run on a packet from user space.
    // 1cf1cae963c2
    XdpTestRun = plain("XDP test runs", (4, 12));
    /// Hash maps that drop what was not used for longest.
    // 29ba732acbee
    LruHash = plain("LRU hash maps", (4, 10));
    /// Arrays mapped into user space.
    // fc9702273e2e
    MmapableArray = plain("mapped arrays", (5, 5));
    /// All entries of a per-CPU array in one system call.
    // f008d732ab18; other maps have it since 5.6 (cb4d03ab499d).
    PercpuBatch = plain("batches of per-CPU arrays", (5, 13));
    /// The helper `bpf_xdp_load_bytes`.
    // 3f364222d032
    XdpLoadBytes = plain("bpf_xdp_load_bytes", (5, 18));
    /// The helper `bpf_loop`.
    // e6f2dd0f8067
    BpfLoop = plain("bpf_loop", (5, 17));
    /// The instruction `may_goto`.
    // 011832b97b31
    CanLoop = plain("can_loop", (6, 9));
    /// The helper `bpf_ktime_get_ns`.
    // d9847d310ab4
    Ktime = plain("bpf_ktime_get_ns", (4, 1));
    /// Ring buffers.
    // 457f44363a88
    RingBuffer = plain("ring buffers", (5, 8));
    /// Memory that programs share with user space, and point into.
    // 317460317a02
    Arena = plain("arena", (6, 9));
    /// Maps of stacks, and the helper `bpf_get_stackid`.
    // d5a3b1f69186
    StackMap = with("stack maps", (4, 6), "CONFIG_PERF_EVENTS");
    /// The file system in which tracepoints have their numbers.
    // 8434dc9340cd
    Tracefs = with("tracefs", (4, 1), "CONFIG_TRACING");
    /// Programs on tracepoints.
    // 98b5c2c65c29
    Tracepoint = with("tracepoint", (4, 7), "CONFIG_BPF_EVENTS");
    /// The same, with the tracepoint's own arguments.
    // c4f6699dfcb8
    RawTracepoint = with("raw_tp", (4, 17), "CONFIG_BPF_EVENTS");
    /// The same, with the types of the arguments.
    // f1b9509c2fb0
    TpBtf = with("tp_btf", (5, 5), "CONFIG_BPF_EVENTS");
    /// A kprobe through perf.
    // e12f03d7031a: by perf's own PMU; through tracefs since 4.1.
    Kprobe = with("kprobe", (4, 17), "CONFIG_KPROBE_EVENTS");
    /// Kprobes on many functions by one link.
    // 0dcac2725406
    KprobeMulti = with("kprobe.multi", (5, 18), "CONFIG_FPROBE");
    /// The same, one program for entry and return.
    // 535a3692ba72
    KprobeSession = with("kprobe.session", (6, 10), "CONFIG_FPROBE");
    /// A uprobe through perf.
    // 33ea4b24277b
    Uprobe = with("uprobe", (4, 17), "CONFIG_UPROBE_EVENTS");
    /// Uprobes at many places by one link.
    // 89ae89f53d20
    UprobeMulti = with("uprobe.multi", (6, 6), "CONFIG_UPROBES");
    /// The same, one program for entry and return.
    // d920179b3d48
    UprobeSession = with("uprobe.session", (6, 13), "CONFIG_UPROBES");
    /// A uprobe on a `nop` of ten bytes with a segment's prefix.
    // Tried: 7.2 has them; 6.1, 6.12 and 6.18 refuse the prefix (ENOTSUPP).
    UprobeNop10 = plain("uprobes on a nop of 10 bytes", (7, 2));
    /// Programs at functions of processes, run there.
    // b745cfba44c1: threads may read their own FS and GS base.
    UserProbe = plain("probes in user space", (5, 9));
    /// Programs at the entry of a kernel function.
    // fec56f5890d9
    Fentry = with("fentry", (5, 5), TRAMPOLINES);
    /// Programs at the return of a kernel function.
    Fexit = with("fexit", (5, 5), TRAMPOLINES);
    /// Programs that decide what a kernel function returns.
    // ae24082331d9
    FmodRet = with("fmod_ret", (5, 7), TRAMPOLINES);
    /// One program for entry and return.
    // 7.0, as cilium/ebpf has it (pull request 2108).
    Fsession = with("fsession", (7, 0), TRAMPOLINES);
    /// `fentry` on many functions by one link.
    // Attach types 59 to 61 of the kernel's own BTF: 7.2 has them, 6.18 has not.
    FentryMulti = with("fentry.multi", (7, 2), TRAMPOLINES);
    /// `fexit` on many functions by one link.
    FexitMulti = with("fexit.multi", (7, 2), TRAMPOLINES);
    /// `fsession` on many functions by one link.
    FsessionMulti = with("fsession.multi", (7, 2), TRAMPOLINES);
    /// Programs on the hooks of security modules.
    // fc611f47f218
    Lsm = with("LSM", (5, 7), "CONFIG_BPF_LSM");
    /// Programs on events of perf.
    // 0515e5999a46
    PerfEvent = with("perf_event", (4, 9), "CONFIG_BPF_EVENTS");
    /// Programs on the packets of a control group.
    // 0e33661de493
    CgroupSkb = with("cgroup_skb", (4, 10), "CONFIG_CGROUP_BPF");
    /// Programs of traffic control, by a link.
    // e420bed02507
    Tcx = with("tcx", (6, 6), "CONFIG_NET_XGRESS");
    /// Programs on the hooks of netfilter.
    // 84601d6ee68a
    Netfilter = with("netfilter", (6, 4), "CONFIG_NETFILTER_BPF_LINK");
    /// XDP programs attached by a link.
    // aa8d3a716b59
    XdpLink = plain("XDP links", (5, 9));
    /// Programs that user space runs, and that may call bpf(2).
    // 79a7f8bdb159
    SyscallProgram = plain("syscall programs", (5, 14));
    /// The function `bpf_modify_return_test_tp`, made to be traced.
    // 3124591f6861
    TriggerKfunc = plain("bpf_modify_return_test_tp", (6, 10));
    /// Pairs of connected network interfaces, in a network namespace of this process's own.
    // e314dbdc1c0d: 2.6.24.
    Veth = with("veth", (2, 6), "CONFIG_VETH");
    /// XDP programs whose test runs pass frames on.
    // b530e9e1063e
    XdpFrames = plain("XDP test runs with live frames", (5, 18));
}
}

impl Feature {
    /// The version that brought it.
    pub fn since(self) -> LinuxVersion {
        self.known().since
    }

    /// The option of the kernel that it needs, where some kernels are built without.
    pub fn config(self) -> Option<&'static str> {
        self.known().config
    }

    /// Refuses a kernel without it.
    pub fn require(self) -> Result<()> {
        match self.missing()? {
            None => Ok(()),
            Some(missing) => Err(Error::Refused(missing.to_string())),
        }
    }

    /// Returns what is missing here, or `None` where the feature is there. Asked once per process. An error says
    /// that the question had no answer: too little memory, no descriptor left.
    pub fn missing(self) -> Result<Option<MissingFeature>> {
        static ANSWERS: [OnceLock<Option<MissingFeature>>; Feature::ALL.len()] =
            [const { OnceLock::new() }; Feature::ALL.len()];
        let answer = &ANSWERS[self as usize];
        if let Some(missing) = answer.get() {
            return Ok(missing.clone());
        }
        let missing = probe::missing(self)?;
        Ok(answer.get_or_init(|| missing).clone())
    }
}

/// The option that fentry and its kin are built on.
const TRAMPOLINES: &str = "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS";

struct FeatureInfo {
    name: &'static str,
    since: LinuxVersion,
    config: Option<&'static str>,
}

const fn plain(name: &'static str, since: (u32, u32)) -> FeatureInfo {
    FeatureInfo {
        name,
        since: LinuxVersion(since),
        config: None,
    }
}

const fn with(name: &'static str, since: (u32, u32), config: &'static str) -> FeatureInfo {
    FeatureInfo {
        config: Some(config),
        ..plain(name, since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Feature::ALL.map(Feature::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Feature::ALL.len());
    }
}
