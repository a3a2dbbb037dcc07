//! The types of programs that can be run in a loop.

use std::ops::RangeInclusive;

use libbpf_rs::ProgramType;

/// A type whose programs can be run in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgramKind {
    /// `xdp`, also `xdp.frags`.
    Xdp,
    /// `tc`, `tcx`, `classifier`.
    Tc,
    /// `cgroup_skb`.
    CgroupSkb,
    /// `socket`.
    SocketFilter,
    /// `raw_tp`.
    RawTracepoint,
    /// `syscall`.
    Syscall,
}

impl ProgramKind {
    /// That of a program, or why there is none, and what measures it instead. `object` is its file.
    pub(super) fn of(
        kind: ProgramType,
        object: &str,
        program: &str,
    ) -> std::result::Result<Self, String> {
        let attachable = match kind {
            ProgramType::Xdp => return Ok(ProgramKind::Xdp),
            ProgramType::SchedCls => return Ok(ProgramKind::Tc),
            ProgramType::CgroupSkb => return Ok(ProgramKind::CgroupSkb),
            ProgramType::SocketFilter => return Ok(ProgramKind::SocketFilter),
            ProgramType::RawTracepoint => return Ok(ProgramKind::RawTracepoint),
            ProgramType::Syscall => return Ok(ProgramKind::Syscall),
            ProgramType::Kprobe => Some("a kprobe or uprobe"),
            ProgramType::Tracepoint => Some("a tracepoint"),
            ProgramType::RawTracepointWritable => Some("a raw tracepoint that it may write to"),
            ProgramType::Tracing => Some("a kernel function (fentry, fexit, tp_btf)"),
            ProgramType::Lsm => Some("a hook of a security module"),
            _ => None,
        };
        Err(match attachable {
            Some(at) => format!(
                "{program} runs at {at}, and such a program can't be run in a loop\n  Measure it where it runs: bpfcost \
                 overhead {object}:{program} -- COMMAND"
            ),
            // Nor can bpfcost attach it: libbpf does not by its section.
            None => format!(
                "{program} runs at {}, and such a program can't be run in a loop\n  To measure it where it runs, have a \
                 loader of its own attach it: bpfcost overhead 'LOADER' -- COMMAND",
                match kind {
                    ProgramType::PerfEvent => "a perf event",
                    ProgramType::StructOps => "a struct_ops",
                    ProgramType::SockOps => "events of a TCP connection",
                    _ => "events of its type",
                }
            ),
        })
    }

    /// Its name in a word.
    pub fn word(self) -> &'static str {
        match self {
            ProgramKind::Xdp => "xdp",
            ProgramKind::Tc => "tc",
            ProgramKind::CgroupSkb => "cgroup_skb",
            ProgramKind::SocketFilter => "socket",
            ProgramKind::RawTracepoint => "raw_tp",
            ProgramKind::Syscall => "syscall",
        }
    }

    /// Whether a program gets its input as its context, not as a packet: the arguments of a raw tracepoint, the
    /// structure that a `syscall` program is called with.
    pub fn takes_context(self) -> bool {
        matches!(self, ProgramKind::RawTracepoint | ProgramKind::Syscall)
    }

    /// The fewest and the most bytes of an input.
    pub fn input_bytes(self) -> RangeInclusive<usize> {
        match self {
            // Twelve arguments, as the kernel allows.
            ProgramKind::RawTracepoint => 0..=96,
            // What its driver restores.
            ProgramKind::Syscall => 0..=512,
            // From an Ethernet header on; what the kernel has room for in a page, beside room for headers.
            _ => 14..=3500,
        }
    }

    /// The object of its driver, and the driver in it.
    pub(super) fn driver(self) -> (&'static str, &'static str) {
        match self {
            ProgramKind::Xdp => ("program_xdp", "program_xdp"),
            ProgramKind::Tc => ("program_skb", "program_tc"),
            ProgramKind::CgroupSkb => ("program_skb", "program_cgroup_skb"),
            ProgramKind::SocketFilter => ("program_skb", "program_socket"),
            ProgramKind::RawTracepoint => ("program_raw_tp", "program_raw_tp"),
            ProgramKind::Syscall => ("program_syscall", "program_syscall"),
        }
    }
}
