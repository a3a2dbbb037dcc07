//! The probe for each feature. A program of two instructions is loaded. If loading does not answer
//! the question, the last step of attaching is called with an argument that every kernel rejects. So nothing is
//! ever attached, and the error shows whether the kernel knows the mechanism.
//!
//! libbpf's own probes are not used: they take every failure for absence, a lack of descriptors too.

use std::{collections::HashMap, fs, sync::OnceLock};

use libbpf_rs::{Btf, btf::BtfType, libbpf_sys as sys, num_possible_cpus};
use rustix::io::Errno;

use super::{
    Feature, MissingFeature, MissingReason,
    kernel::{
        self, CALL, ENOTSUPP, EXIT, GOTO, KernelRefusal, MAY_GOTO, MOVE, ProgramSpec, instruction,
        returns_0,
    },
};
use crate::{
    error::{Error, Result},
    lockdown,
    mount::MountedFs,
    net,
    routine::{self, Routine},
};

/// Attach types of Linux 7.2 that this libbpf has no names for.
pub(crate) const TRACE_FENTRY_MULTI: sys::bpf_attach_type = 59;
pub(crate) const TRACE_FEXIT_MULTI: sys::bpf_attach_type = 60;
pub(crate) const TRACE_FSESSION_MULTI: sys::bpf_attach_type = 61;

/// A function that the kernel has for tests of tracing, and calls for nothing else.
const TRACED: &str = "bpf_fentry_test1";
/// Functions whose return value may be changed: those of security modules always, the one for tests before
/// Linux 6.3 only with CONFIG_FUNCTION_ERROR_INJECTION, which Debian's 6.1 lacks.
const MODIFIED: [&str; 2] = ["security_file_open", "bpf_modify_return_test"];
/// The type of a tracepoint that every kernel has.
const TRACEPOINT: &str = "btf_trace_sched_switch";
/// A hook of security modules that every kernel has.
const HOOK: &str = "bpf_lsm_file_open";

/// A function with a tracepoint in it, made to be called by BPF programs.
const TRIGGER: &str = "bpf_modify_return_test_tp";

/// The loopback interface, in every network namespace.
const LOOPBACK: i32 = 1;

/// BPF's number among the security modules (LSM_ID_BPF).
const BPF_MODULE: u64 = 110;

const BPF: (u32, &str) = (39, "CAP_BPF");
const PERFMON: (u32, &str) = (38, "CAP_PERFMON");
const NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const SYS_PTRACE: (u32, &str) = (19, "CAP_SYS_PTRACE");
const SYS_ADMIN: (u32, &str) = (21, "CAP_SYS_ADMIN");

/// The reason under lockdown.
const LOCKED_DOWN: &str =
    "the kernel is in lockdown: boot without lockdown=confidentiality, or measure in a guest";

/// The kernel's answer to a probe.
enum Support {
    There,
    No(KernelRefusal),
    Off(&'static str),
}

/// Returns what is missing of a feature; `None` where it is there.
pub(super) fn missing(feature: Feature) -> Result<Option<MissingFeature>> {
    let no = match ask(feature) {
        Support::There => return Ok(None),
        Support::Off(how) => {
            return Ok(Some(MissingFeature::new(feature, MissingReason::Off(how))));
        }
        Support::No(no) => no,
    };
    match no.errno {
        libc::EPERM | libc::EACCES => Ok(Some(MissingFeature::refused(
            feature,
            no.to_string(),
            capabilities(feature),
        ))),
        libc::EINVAL | libc::E2BIG | libc::EOPNOTSUPP | ENOTSUPP | libc::ENOSYS | libc::ENOENT => {
            Ok(Some(MissingFeature::absent(feature, no.to_string())))
        }
        _ => Err(Error::Refused(format!(
            "cannot determine whether this kernel has {feature}: {no}"
        ))),
    }
}

/// Returns the capabilities that it takes to be allowed, each with its name.
fn capabilities(feature: Feature) -> &'static [(u32, &'static str)] {
    match feature {
        Feature::Btf | Feature::LruHash | Feature::MmapableArray => &[BPF],
        Feature::PercpuBatch | Feature::RingBuffer | Feature::Arena => &[BPF],
        Feature::Tracefs => &[SYS_ADMIN],
        Feature::XdpTestRun | Feature::XdpLoadBytes | Feature::BpfLoop | Feature::Ktime => {
            &[BPF, NET_ADMIN]
        }
        Feature::CgroupSkb | Feature::Tcx | Feature::Netfilter | Feature::XdpLink => {
            &[BPF, NET_ADMIN]
        }
        Feature::CanLoop => &[BPF, NET_ADMIN, PERFMON],
        Feature::Veth => &[NET_ADMIN, SYS_ADMIN],
        Feature::UserProbe => &[BPF, PERFMON, SYS_PTRACE],
        Feature::XdpFrames => &[BPF, NET_ADMIN],
        _ => &[BPF, PERFMON],
    }
}

impl Feature {
    /// Returns true if bpf(2), or else perf, says who may: CAP_SYS_ADMIN stands for all else there.
    pub(super) fn by_bpf(self) -> bool {
        self != Feature::Veth
    }
}

fn ask(feature: Feature) -> Support {
    let xdp = sys::BPF_PROG_TYPE_XDP;
    match feature {
        Feature::Btf => answer(btf().ok_or(KernelRefusal::from_errno(libc::ENOENT))),
        Feature::XdpTestRun => {
            answer(kernel::load(returns_0(xdp)).and_then(|program| kernel::test_run(&program)))
        }
        Feature::LruHash => map(sys::BPF_MAP_TYPE_LRU_HASH, [4, 8, 64], 0),
        Feature::MmapableArray => map(sys::BPF_MAP_TYPE_ARRAY, [4, 8, 1], sys::BPF_F_MMAPABLE),
        Feature::PercpuBatch => percpu_batch(),
        Feature::XdpLoadBytes => helper(xdp, sys::BPF_FUNC_xdp_load_bytes),
        Feature::BpfLoop => helper(xdp, sys::BPF_FUNC_loop),
        Feature::CanLoop => load(ProgramSpec {
            instructions: &[
                instruction(MOVE, 0, 0),
                // Over the jump back, or on to it: a loop without another end.
                instruction(MAY_GOTO, 1, 0),
                instruction(GOTO, -2, 0),
                instruction(EXIT, 0, 0),
            ],
            kind: xdp,
            ..ProgramSpec::default()
        }),
        Feature::Ktime => helper(xdp, sys::BPF_FUNC_ktime_get_ns),
        Feature::RingBuffer => map(sys::BPF_MAP_TYPE_RINGBUF, [0, 0, 1 << 16], 0),
        Feature::Arena => map(sys::BPF_MAP_TYPE_ARENA, [0, 0, 1], sys::BPF_F_MMAPABLE),
        Feature::StackMap => match map(sys::BPF_MAP_TYPE_STACK_TRACE, [4, 8, 1], 0) {
            Support::There => helper(sys::BPF_PROG_TYPE_RAW_TRACEPOINT, sys::BPF_FUNC_get_stackid),
            other => other,
        },
        Feature::Tracefs => tracefs(),
        Feature::Tracepoint => load(returns_0(sys::BPF_PROG_TYPE_TRACEPOINT)),
        Feature::RawTracepoint => load(returns_0(sys::BPF_PROG_TYPE_RAW_TRACEPOINT)),
        Feature::TpBtf => tracing(sys::BPF_TRACE_RAW_TP, btf_number(TRACEPOINT)),
        // Perf knows them still, and refuses each.
        Feature::Kprobe if lockdown::forbids_looking() => Support::Off(LOCKED_DOWN),
        Feature::Kprobe => perf_probe("kprobe"),
        Feature::Uprobe => perf_probe("uprobe"),
        Feature::KprobeMulti => probes(sys::BPF_TRACE_KPROBE_MULTI, false),
        Feature::KprobeSession => probes(sys::BPF_TRACE_KPROBE_SESSION, false),
        Feature::UprobeMulti => probes(sys::BPF_TRACE_UPROBE_MULTI, true),
        Feature::UprobeNop10 => match routine::file_offset(Routine::Nop10) {
            Ok(offset) => {
                answer(perf_type("uprobe").and_then(|number| kernel::uprobe(number, offset)))
            }
            Err(error) => Support::No(KernelRefusal::from_errno(
                error.raw_os_error().unwrap_or(ENOTSUPP),
            )),
        },
        Feature::UserProbe => user_probe(),
        Feature::UprobeSession => probes(sys::BPF_TRACE_UPROBE_SESSION, true),
        // Loading is enough: attaching would patch the kernel's code and wait for every CPU to see it.
        Feature::Fentry => tracing(sys::BPF_TRACE_FENTRY, btf_number(TRACED)),
        Feature::Fexit => tracing(sys::BPF_TRACE_FEXIT, btf_number(TRACED)),
        Feature::FmodRet => tracing(
            sys::BPF_MODIFY_RETURN,
            MODIFIED.into_iter().find_map(btf_number),
        ),
        Feature::Fsession => tracing(sys::BPF_TRACE_FSESSION, btf_number(TRACED)),
        // Which functions is said by the link alone.
        Feature::FentryMulti => tracing(TRACE_FENTRY_MULTI, Some(0)),
        Feature::FexitMulti => tracing(TRACE_FEXIT_MULTI, Some(0)),
        Feature::FsessionMulti => tracing(TRACE_FSESSION_MULTI, Some(0)),
        Feature::Lsm => lsm(),
        Feature::PerfEvent => match load(returns_0(sys::BPF_PROG_TYPE_PERF_EVENT)) {
            Support::There => answer(kernel::page_faults()),
            other => other,
        },
        Feature::CgroupSkb => load(ProgramSpec {
            attach: sys::BPF_CGROUP_INET_EGRESS,
            ..returns_0(sys::BPF_PROG_TYPE_CGROUP_SKB)
        }),
        // No interface has this number.
        Feature::Tcx => link(
            ProgramSpec {
                attach: sys::BPF_TCX_INGRESS,
                ..returns_0(sys::BPF_PROG_TYPE_SCHED_CLS)
            },
            |program| kernel::link_interface(program, i32::MAX, sys::BPF_TCX_INGRESS, 0),
            &[libc::ENODEV],
        ),
        Feature::Netfilter => load(ProgramSpec {
            attach: sys::BPF_NETFILTER,
            ..returns_0(sys::BPF_PROG_TYPE_NETFILTER)
        }),
        // The loopback interface has no driver that could run XDP; where someone else has a program
        // there already, the kernel says that instead.
        Feature::XdpLink => link(
            ProgramSpec {
                attach: sys::BPF_XDP,
                ..returns_0(xdp)
            },
            |program| {
                kernel::link_interface(program, LOOPBACK, sys::BPF_XDP, sys::XDP_FLAGS_DRV_MODE)
            },
            &[libc::EOPNOTSUPP, libc::EEXIST, libc::EBUSY],
        ),
        Feature::SyscallProgram => load(ProgramSpec {
            flags: sys::BPF_F_SLEEPABLE,
            ..returns_0(sys::BPF_PROG_TYPE_SYSCALL)
        }),
        Feature::TriggerKfunc => {
            answer(btf_number(TRIGGER).ok_or(KernelRefusal::from_errno(libc::ENOENT)))
        }
        Feature::Veth => veth(),
        // No kernel takes batches of so many; one without live frames takes no batch at all.
        Feature::XdpFrames => link(returns_0(xdp), kernel::run_frames, &[libc::E2BIG]),
    }
}

/// The verifier judges the programs, as uprobes; threads have to find their memory.
fn user_probe() -> Support {
    match bpfcost_uprobe::process::check_support() {
        Ok(()) => load(returns_0(sys::BPF_PROG_TYPE_KPROBE)),
        Err(_) => Support::No(KernelRefusal::from_errno(ENOTSUPP)),
    }
}

fn answer<T>(result: std::result::Result<T, KernelRefusal>) -> Support {
    match result {
        Ok(_) => Support::There,
        Err(no) => Support::No(no),
    }
}

fn load(program: ProgramSpec<'_>) -> Support {
    answer(kernel::load(program))
}

fn map(kind: sys::bpf_map_type, shape: [u32; 3], flags: u32) -> Support {
    answer(kernel::map(kind, shape, flags))
}

/// A program that attaches to something of the kernel's BTF.
fn tracing(attach: sys::bpf_attach_type, target: Option<u32>) -> Support {
    let Some(target) = target else {
        return Support::No(KernelRefusal::from_errno(libc::ENOENT));
    };
    load(ProgramSpec {
        attach,
        target,
        ..returns_0(sys::BPF_PROG_TYPE_TRACING)
    })
}

/// A link that can't be: there, where the kernel says one of `knows` of it.
fn link<T>(
    program: ProgramSpec<'_>,
    ask: impl FnOnce(&std::os::fd::OwnedFd) -> std::result::Result<T, KernelRefusal>,
    knows: &[i32],
) -> Support {
    match kernel::load(program).and_then(|program| ask(&program)) {
        Err(no) if knows.contains(&no.errno) => Support::There,
        said => answer(said),
    }
}

/// A link of many probes, in user space or in the kernel.
fn probes(attach: sys::bpf_attach_type, user: bool) -> Support {
    let program = ProgramSpec {
        attach,
        ..returns_0(sys::BPF_PROG_TYPE_KPROBE)
    };
    let ask = |program: &_| kernel::link_nowhere(program, attach, user);
    link(program, ask, &[libc::EFAULT])
}

/// Perf lists the kinds of probes that it makes, each with a number.
fn perf_type(kind: &str) -> std::result::Result<u32, KernelRefusal> {
    let listed = fs::read_to_string(format!("/sys/bus/event_source/devices/{kind}/type"));
    let number = listed.ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| KernelRefusal::from_errno(libc::ENOENT))
}

fn perf_probe(kind: &str) -> Support {
    match perf_type(kind).and_then(kernel::probe_nowhere) {
        Err(no) if no.errno == libc::EFAULT => load(returns_0(sys::BPF_PROG_TYPE_KPROBE)),
        said => answer(said),
    }
}

fn percpu_batch() -> Support {
    let Ok(cpus) = num_possible_cpus() else {
        return Support::No(KernelRefusal::from_errno(libc::EIO));
    };
    let map = kernel::map(sys::BPF_MAP_TYPE_PERCPU_ARRAY, [4, 8, 1], 0);
    match map.and_then(|map| kernel::read_batch(&map, cpus)) {
        // So it says that it has come to the end of the map.
        Err(no) if no.errno == libc::ENOENT => Support::There,
        said => answer(said),
    }
}

/// The verifier refuses a helper without its arguments; one that it doesn't know, it names.
fn helper(kind: sys::bpf_prog_type, helper: sys::bpf_func_id) -> Support {
    let call = ProgramSpec {
        instructions: &[
            instruction(CALL, 0, helper as i32),
            instruction(MOVE, 0, 0),
            instruction(EXIT, 0, 0),
        ],
        kind,
        ..ProgramSpec::default()
    };
    let unknown = |log: &str| {
        ["invalid func", "unknown func", "cannot use helper"]
            .iter()
            .any(|words| log.contains(words))
    };
    match kernel::load(call) {
        Err(no)
            if matches!(no.errno, libc::EACCES | libc::EINVAL)
                && !no.log.is_empty()
                && !unknown(&no.log) =>
        {
            Support::There
        }
        said => answer(said),
    }
}

/// In a namespace that ends with its thread, a pair is asked for with an address that no interface can have:
/// a kernel with veth says so of the address.
fn veth() -> Support {
    let asked = std::thread::Builder::new().spawn(net::refused_veth);
    let error = match asked.map(std::thread::JoinHandle::join) {
        Ok(Ok(Err(error))) | Err(error) => error,
        // It was made after all, and is gone with the thread.
        Ok(Ok(Ok(()))) => return Support::There,
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
    };
    match error.raw_os_error().unwrap_or(libc::EIO) {
        libc::EADDRNOTAVAIL => Support::There,
        errno => Support::No(KernelRefusal::from_errno(errno)),
    }
}

fn tracefs() -> Support {
    match MountedFs::ask("tracefs") {
        Ok(tracefs) if tracefs.path("events").exists() => Support::There,
        // In lockdown it is there, and empty.
        Ok(_) if lockdown::forbids_looking() => Support::Off(LOCKED_DOWN),
        // A kernel without it says so with a word for devices.
        Ok(_) | Err(Errno::NODEV) => Support::No(KernelRefusal::from_errno(libc::ENOENT)),
        Err(errno) => Support::No(KernelRefusal::from_errno(errno.raw_os_error())),
    }
}

/// Programs load and attach whether or not the hooks call them: that takes `bpf` among the modules.
fn lsm() -> Support {
    let Some(target) = btf_number(HOOK) else {
        return Support::No(KernelRefusal::from_errno(libc::ENOENT));
    };
    let loaded = load(ProgramSpec {
        attach: sys::BPF_LSM_MAC,
        target,
        ..returns_0(sys::BPF_PROG_TYPE_LSM)
    });
    if !matches!(loaded, Support::There) {
        return loaded;
    }
    let by_name = || {
        let securityfs = MountedFs::ask("securityfs").ok()?;
        fs::read_to_string(securityfs.path("lsm")).ok()
    };
    let on = match kernel::security_modules() {
        Some(numbers) => Some(numbers.contains(&BPF_MODULE)),
        None => by_name().map(|names| names.trim().split(',').any(|name| name == "bpf")),
    };
    match on {
        Some(true) => Support::There,
        Some(false) => {
            Support::Off("boot with lsm= set to the list of /sys/kernel/security/lsm and bpf")
        }
        None => Support::Off("or unknown: mount -t securityfs securityfs /sys/kernel/security"),
    }
}

/// Names to look for in the kernel's BTF: what features are asked with, and what programs attach to.
const TYPES: [&str; 12] = [
    TRACED,
    MODIFIED[0],
    MODIFIED[1],
    TRACEPOINT,
    HOOK,
    TRIGGER,
    "bpf_get_numa_node_id",
    "bpf_trace_printk",
    "security_bpf",
    "bpf_lsm_bpf",
    "btf_trace_bpf_trigger_tp",
    "btf_trace_bpf_trace_printk",
];

/// The number of one of [`TYPES`] in the kernel's BTF, where it has it.
pub(crate) fn btf_number(name: &str) -> Option<u32> {
    debug_assert!(TYPES.contains(&name), "{name}");
    btf().and_then(|numbers| numbers.get(name).copied())
}

/// The kernel's BTF, read once; `None` where there is none.
fn btf() -> Option<&'static HashMap<&'static str, u32>> {
    static READ: OnceLock<Option<HashMap<&'static str, u32>>> = OnceLock::new();
    let read = || {
        let btf = Btf::from_vmlinux().ok()?;
        // One walk over all of them: to look for a name takes libbpf as long, where they are not sorted.
        let named = (1..btf.len() as u32).filter_map(|number| {
            let kind = btf.type_by_id::<BtfType<'_>>(number.into())?;
            let name = kind.name()?.to_str()?;
            let wanted = TYPES.into_iter().find(|wanted| *wanted == name)?;
            Some((wanted, number))
        });
        Some(named.collect())
    };
    READ.get_or_init(read).as_ref()
}
