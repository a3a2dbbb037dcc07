//! What the kernel must have for a BPF program to be loaded and attached: asked of the kernel, not guessed
//! from its version.
//!
//! After the feature probes of cilium/ebpf: each feature names the version that brought it, what is missing
//! has a reason, and on a kernel that should have it a test fails (`tests/features.rs`). Versions and
//! commits are those of <https://docs.ebpf.io> and of the kernel's history.

pub(crate) mod kernel;
mod missing;
mod probe;

use std::{fmt, sync::OnceLock};

pub(crate) use missing::release;
pub use missing::{Missing, Version, Why};
pub(crate) use probe::{TRACE_FENTRY_MULTI, TRACE_FEXIT_MULTI, TRACE_FSESSION_MULTI, btf_number};

use crate::error::Result;

/// Something that a kernel has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Types of the kernel in `/sys/kernel/btf/vmlinux`.
    Btf,
    /// XDP programs that run on a packet from user space.
    XdpTestRun,
    /// Hash maps that drop what was not used for longest.
    LruHash,
    /// Arrays mapped into user space.
    MmapableArray,
    /// All entries of a per-CPU array in one system call.
    PercpuBatch,
    /// The helper `bpf_xdp_load_bytes`.
    XdpLoadBytes,
    /// The helper `bpf_loop`.
    BpfLoop,
    /// The instruction `may_goto`.
    CanLoop,
    /// The helper `bpf_ktime_get_ns`.
    Ktime,
    /// Ring buffers.
    RingBuffer,
    /// Memory that programs share with user space, and point into.
    Arena,
    /// Maps of stacks, and the helper `bpf_get_stackid`.
    StackMap,
    /// Where tracepoints have their numbers.
    Tracefs,
    /// Programs on tracepoints.
    Tracepoint,
    /// The same, with the tracepoint's own arguments.
    RawTracepoint,
    /// The same, with the types of the arguments.
    TpBtf,
    /// A kprobe through perf.
    Kprobe,
    /// Kprobes on many functions by one link.
    KprobeMulti,
    /// The same, one program for entry and return.
    KprobeSession,
    /// A uprobe through perf.
    Uprobe,
    /// Uprobes at many places by one link.
    UprobeMulti,
    /// The same, one program for entry and return.
    UprobeSession,
    /// Programs at the entry of a kernel function.
    Fentry,
    /// Programs at the return of a kernel function.
    Fexit,
    /// Programs that decide what a kernel function returns.
    FmodRet,
    /// One program for entry and return.
    Fsession,
    /// `fentry` on many functions by one link.
    FentryMulti,
    /// `fexit` on many functions by one link.
    FexitMulti,
    /// `fsession` on many functions by one link.
    FsessionMulti,
    /// Programs on the hooks of security modules.
    Lsm,
    /// Programs on events of perf.
    PerfEvent,
    /// Programs on the packets of a control group.
    CgroupSkb,
    /// Programs of traffic control, by a link.
    Tcx,
    /// Programs on the hooks of netfilter.
    Netfilter,
    /// XDP programs attached by a link.
    XdpLink,
    /// Programs that user space runs, and that may call bpf(2).
    SyscallProgram,
    /// The function `bpf_modify_return_test_tp`, made to be traced.
    TriggerKfunc,
    /// Pairs of connected network interfaces, in a network namespace of this process's own.
    Veth,
    /// XDP programs whose test runs pass frames on.
    XdpFrames,
}

impl Feature {
    /// All of them, in the order of `bpfcost check --features`.
    pub const ALL: [Feature; 39] = [
        Feature::Btf,
        Feature::XdpTestRun,
        Feature::LruHash,
        Feature::MmapableArray,
        Feature::PercpuBatch,
        Feature::XdpLoadBytes,
        Feature::BpfLoop,
        Feature::CanLoop,
        Feature::Ktime,
        Feature::RingBuffer,
        Feature::Arena,
        Feature::StackMap,
        Feature::Tracefs,
        Feature::Tracepoint,
        Feature::RawTracepoint,
        Feature::TpBtf,
        Feature::Kprobe,
        Feature::KprobeMulti,
        Feature::KprobeSession,
        Feature::Uprobe,
        Feature::UprobeMulti,
        Feature::UprobeSession,
        Feature::Fentry,
        Feature::Fexit,
        Feature::FmodRet,
        Feature::Fsession,
        Feature::FentryMulti,
        Feature::FexitMulti,
        Feature::FsessionMulti,
        Feature::Lsm,
        Feature::PerfEvent,
        Feature::CgroupSkb,
        Feature::Tcx,
        Feature::Netfilter,
        Feature::XdpLink,
        Feature::SyscallProgram,
        Feature::TriggerKfunc,
        Feature::Veth,
        Feature::XdpFrames,
    ];

    /// As people know it.
    pub fn name(self) -> &'static str {
        self.known().name
    }

    /// The version that brought it.
    pub fn since(self) -> Version {
        self.known().since
    }

    /// The option of the kernel that it needs, where some kernels are built without.
    pub fn config(self) -> Option<&'static str> {
        self.known().config
    }

    /// What is missing here, or `None` where the feature is there. Asked once per process. An error says
    /// that the question had no answer: too little memory, no descriptor left.
    pub fn missing(self) -> Result<Option<Missing>> {
        static ANSWERS: [OnceLock<Option<Missing>>; Feature::ALL.len()] =
            [const { OnceLock::new() }; Feature::ALL.len()];
        let answer = &ANSWERS[self as usize];
        if let Some(known) = answer.get() {
            return Ok(known.clone());
        }
        let found = probe::missing(self)?;
        Ok(answer.get_or_init(|| found).clone())
    }

    /// What is known of it without asking. Behind each version, the commit that brought it.
    fn known(self) -> Known {
        let plain = |name, since| Known {
            name,
            since: Version(since),
            config: None,
        };
        let with = |name, since, config| Known {
            config: Some(config),
            ..plain(name, since)
        };
        match self {
            // 341dfcf8d78e: sysfs exports it, 5.4.
            Feature::Btf => with("BTF", (5, 4), "CONFIG_DEBUG_INFO_BTF"),
            // 1cf1cae963c2
            Feature::XdpTestRun => plain("XDP test runs", (4, 12)),
            // 29ba732acbee
            Feature::LruHash => plain("LRU hash maps", (4, 10)),
            // fc9702273e2e
            Feature::MmapableArray => plain("mapped arrays", (5, 5)),
            // f008d732ab18; other maps have it since 5.6 (cb4d03ab499d).
            Feature::PercpuBatch => plain("batches of per-CPU arrays", (5, 13)),
            // 3f364222d032
            Feature::XdpLoadBytes => plain("bpf_xdp_load_bytes", (5, 18)),
            // e6f2dd0f8067
            Feature::BpfLoop => plain("bpf_loop", (5, 17)),
            // 011832b97b31
            Feature::CanLoop => plain("can_loop", (6, 9)),
            // d9847d310ab4
            Feature::Ktime => plain("bpf_ktime_get_ns", (4, 1)),
            // 457f44363a88
            Feature::RingBuffer => plain("ring buffers", (5, 8)),
            // 317460317a02
            Feature::Arena => plain("arena", (6, 9)),
            // d5a3b1f69186
            Feature::StackMap => with("stack maps", (4, 6), "CONFIG_PERF_EVENTS"),
            // 8434dc9340cd
            Feature::Tracefs => with("tracefs", (4, 1), "CONFIG_TRACING"),
            // 98b5c2c65c29
            Feature::Tracepoint => with("tracepoint", (4, 7), "CONFIG_BPF_EVENTS"),
            // c4f6699dfcb8
            Feature::RawTracepoint => with("raw_tp", (4, 17), "CONFIG_BPF_EVENTS"),
            // f1b9509c2fb0
            Feature::TpBtf => with("tp_btf", (5, 5), "CONFIG_BPF_EVENTS"),
            // e12f03d7031a: by perf's own PMU; through tracefs since 4.1.
            Feature::Kprobe => with("kprobe", (4, 17), "CONFIG_KPROBE_EVENTS"),
            // 0dcac2725406
            Feature::KprobeMulti => with("kprobe.multi", (5, 18), "CONFIG_FPROBE"),
            // 535a3692ba72
            Feature::KprobeSession => with("kprobe.session", (6, 10), "CONFIG_FPROBE"),
            // 33ea4b24277b
            Feature::Uprobe => with("uprobe", (4, 17), "CONFIG_UPROBE_EVENTS"),
            // 89ae89f53d20
            Feature::UprobeMulti => with("uprobe.multi", (6, 6), "CONFIG_UPROBES"),
            // d920179b3d48
            Feature::UprobeSession => with("uprobe.session", (6, 13), "CONFIG_UPROBES"),
            // fec56f5890d9
            Feature::Fentry => with("fentry", (5, 5), TRAMPOLINES),
            Feature::Fexit => with("fexit", (5, 5), TRAMPOLINES),
            // ae24082331d9
            Feature::FmodRet => with("fmod_ret", (5, 7), TRAMPOLINES),
            // 7.0, as cilium/ebpf has it (pull request 2108).
            Feature::Fsession => with("fsession", (7, 0), TRAMPOLINES),
            // Attach types 59 to 61 of the kernel's own BTF: 7.2 has them, 6.18 has not.
            Feature::FentryMulti => with("fentry.multi", (7, 2), TRAMPOLINES),
            Feature::FexitMulti => with("fexit.multi", (7, 2), TRAMPOLINES),
            Feature::FsessionMulti => with("fsession.multi", (7, 2), TRAMPOLINES),
            // fc611f47f218
            Feature::Lsm => with("LSM", (5, 7), "CONFIG_BPF_LSM"),
            // 0515e5999a46
            Feature::PerfEvent => with("perf_event", (4, 9), "CONFIG_BPF_EVENTS"),
            // 0e33661de493
            Feature::CgroupSkb => with("cgroup_skb", (4, 10), "CONFIG_CGROUP_BPF"),
            // e420bed02507
            Feature::Tcx => with("tcx", (6, 6), "CONFIG_NET_XGRESS"),
            // 84601d6ee68a
            Feature::Netfilter => with("netfilter", (6, 4), "CONFIG_NETFILTER_BPF_LINK"),
            // aa8d3a716b59
            Feature::XdpLink => plain("XDP links", (5, 9)),
            // 79a7f8bdb159
            Feature::SyscallProgram => plain("syscall programs", (5, 14)),
            // 3124591f6861
            Feature::TriggerKfunc => plain("bpf_modify_return_test_tp", (6, 10)),
            // e314dbdc1c0d: 2.6.24.
            Feature::Veth => with("veth", (2, 6), "CONFIG_VETH"),
            // b530e9e1063e
            Feature::XdpFrames => plain("XDP test runs with live frames", (5, 18)),
        }
    }
}

/// What fentry and its kin are built on.
const TRAMPOLINES: &str = "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS";

struct Known {
    name: &'static str,
    since: Version,
    config: Option<&'static str>,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_its_own_place() {
        for (place, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, place, "{feature}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = Feature::ALL.map(Feature::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Feature::ALL.len());
    }
}
