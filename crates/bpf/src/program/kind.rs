//! The types of programs that can be run in a loop.

use std::ops::RangeInclusive;

use libbpf_rs::{ProgramType, libbpf_sys as sys};
use serde::{Deserialize, Serialize};

use super::spliced::PACKET_BYTES;

/// A type whose programs can be run in a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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

/// Sections of XDP programs that the kernel runs behind a redirect.
const REDIRECTED: [&str; 4] = [
    "xdp/devmap",
    "xdp.frags/devmap",
    "xdp/cpumap",
    "xdp.frags/cpumap",
];

/// The type of a program, of which libbpf says `kind`. Other loaders take a name of their own behind `perf_event/`.
pub(crate) fn program_type(kind: ProgramType, section: &str) -> ProgramType {
    match kind {
        ProgramType::Unspec if section.starts_with("perf_event/") => ProgramType::PerfEvent,
        kind => kind,
    }
}

impl ProgramKind {
    /// All of them.
    pub const ALL: [ProgramKind; 6] = [
        ProgramKind::Xdp,
        ProgramKind::Tc,
        ProgramKind::CgroupSkb,
        ProgramKind::SocketFilter,
        ProgramKind::RawTracepoint,
        ProgramKind::Syscall,
    ];

    /// Returns the type of a program of which libbpf says `kind`, or why it can't be run in a loop, and what measures
    /// it instead. `object` is its file; `unnamed` the type of programs whose section names none.
    pub(super) fn from_section(
        kind: ProgramType,
        object: &str,
        program: &str,
        section: &str,
        unnamed: Option<ProgramKind>,
    ) -> std::result::Result<Self, String> {
        let kind = program_type(kind, section);
        let attachable = match kind {
            ProgramType::Xdp if REDIRECTED.contains(&section) => {
                return Err(format!(
                    "{program} runs on packets that were redirected through a map ({section}), and the kernel refuses \
                     test runs of such a program\n  To time it, compile the same function with SEC(\"xdp\")"
                ));
            }
            ProgramType::Xdp => return Ok(ProgramKind::Xdp),
            ProgramType::SchedCls => return Ok(ProgramKind::Tc),
            ProgramType::CgroupSkb => return Ok(ProgramKind::CgroupSkb),
            ProgramType::SocketFilter => return Ok(ProgramKind::SocketFilter),
            ProgramType::RawTracepoint => return Ok(ProgramKind::RawTracepoint),
            ProgramType::Syscall => return Ok(ProgramKind::Syscall),
            ProgramType::Unspec => {
                let kind = unnamed.or_else(|| ProgramKind::by_prefix(section));
                return kind.ok_or_else(|| {
                    format!(
                        "{program} is in the section {section}, whose name does not tell its type\n  Name the type: --type \
                         xdp, --type tc, … Names that tell it begin with xdp, tc, classifier, socket, or are as in libbpf's \
                         documentation (cgroup_skb/ingress, socket, raw_tp/NAME, syscall)"
                    )
                });
            }
            ProgramType::Tracing if is_iterator(section) => {
                return Err(format!(
                    "{program} runs when its iterator is read, and such a program can't be run in a loop\n  Measure what \
                     reads it: bpftool iter pin {object} /sys/fs/bpf/{program}; perf stat -r 100 cat /sys/fs/bpf/{program}"
                ));
            }
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

    /// Returns the type that the beginning of a section's name tells: loaders other than libbpf take what follows as a
    /// name.
    fn by_prefix(section: &str) -> Option<Self> {
        let begins = |word: &str| section.starts_with(word);
        // Not `tcp`.
        let is_tc = section.strip_prefix("tc").is_some_and(|rest| {
            !rest.starts_with(|next: char| next.is_alphabetic() && next != 'x')
        });
        if begins("xdp") {
            Some(ProgramKind::Xdp)
        } else if begins("classifier") || is_tc {
            Some(ProgramKind::Tc)
        } else if begins("socket") {
            Some(ProgramKind::SocketFilter)
        } else {
            None
        }
    }

    /// The type as the kernel has it.
    pub(super) fn program_type(self) -> ProgramType {
        match self {
            ProgramKind::Xdp => ProgramType::Xdp,
            ProgramKind::Tc => ProgramType::SchedCls,
            ProgramKind::CgroupSkb => ProgramType::CgroupSkb,
            ProgramKind::SocketFilter => ProgramType::SocketFilter,
            ProgramKind::RawTracepoint => ProgramType::RawTracepoint,
            ProgramKind::Syscall => ProgramType::Syscall,
        }
    }

    /// The flags that a program of this type and section is loaded with.
    pub(super) fn flags(self, section: &str) -> u32 {
        match self {
            ProgramKind::Xdp if section.starts_with("xdp.frags") => sys::BPF_F_XDP_HAS_FRAGS,
            ProgramKind::Syscall => sys::BPF_F_SLEEPABLE,
            _ => 0,
        }
    }

    /// One-word name.
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

    /// The name of a code that programs of this type return, as their headers have it; `None` of other numbers.
    pub fn code_name(self, code: i32) -> Option<&'static str> {
        let names: &[(i32, &'static str)] = match self {
            ProgramKind::Xdp => &[
                (0, "XDP_ABORTED"),
                (1, "XDP_DROP"),
                (2, "XDP_PASS"),
                (3, "XDP_TX"),
                (4, "XDP_REDIRECT"),
            ],
            ProgramKind::Tc => &[
                (-1, "TC_ACT_UNSPEC"),
                (0, "TC_ACT_OK"),
                (1, "TC_ACT_RECLASSIFY"),
                (2, "TC_ACT_SHOT"),
                (3, "TC_ACT_PIPE"),
                (4, "TC_ACT_STOLEN"),
                (5, "TC_ACT_QUEUED"),
                (6, "TC_ACT_REPEAT"),
                (7, "TC_ACT_REDIRECT"),
                (8, "TC_ACT_TRAP"),
            ],
            ProgramKind::CgroupSkb => &[(0, "0, drops"), (1, "1, allows")],
            ProgramKind::SocketFilter => &[(0, "0, drops")],
            ProgramKind::RawTracepoint | ProgramKind::Syscall => &[],
        };
        let named = names.iter().find(|(known, _)| *known == code);
        named.map(|(_, name)| *name)
    }

    /// Returns true if a program gets its input as its context, not as a packet: the arguments of a raw tracepoint,
    /// the structure that a `syscall` program is called with.
    pub fn takes_context(self) -> bool {
        matches!(self, ProgramKind::RawTracepoint | ProgramKind::Syscall)
    }

    /// The fewest and the most bytes of an input that the kernel's test run takes for a program of this type and section:
    /// a page without the head and the tail of a frame or an skb; of frames in fragments, what drivers have room for.
    pub fn input_bytes(self, section: &str) -> RangeInclusive<usize> {
        match self {
            // Twelve arguments, as the kernel allows.
            ProgramKind::RawTracepoint => 0..=96,
            // What its driver restores.
            ProgramKind::Syscall => 0..=512,
            // From an Ethernet header on; what the kernel has room for in a page, beside room for headers.
            ProgramKind::Xdp if self.flags(section) & sys::BPF_F_XDP_HAS_FRAGS != 0 => {
                14..=PACKET_BYTES - 1
            }
            ProgramKind::Xdp => 14..=3520,
            ProgramKind::Tc | ProgramKind::CgroupSkb | ProgramKind::SocketFilter => 14..=3712,
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

/// Returns true if a section is that of an iterator.
fn is_iterator(section: &str) -> bool {
    matches!(section.split('/').next(), Some("iter" | "iter.s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unnamed(
        section: &str,
        unnamed: Option<ProgramKind>,
    ) -> std::result::Result<ProgramKind, String> {
        ProgramKind::from_section(ProgramType::Unspec, "x.bpf.o", "parse", section, unnamed)
    }

    #[test]
    fn the_beginning_of_a_section_tells_a_type() {
        for (section, kind) in [
            ("xdp_sock", ProgramKind::Xdp),
            ("xdp/second", ProgramKind::Xdp),
            ("xdpclient", ProgramKind::Xdp),
            ("tc/entry", ProgramKind::Tc),
            ("tc_edt", ProgramKind::Tc),
            ("tcx/other", ProgramKind::Tc),
            ("classifier/ingress", ProgramKind::Tc),
            ("socket1", ProgramKind::SocketFilter),
        ] {
            assert_eq!(unnamed(section, None), Ok(kind), "{section}");
        }
        for section in ["grow_parse", "tcp_events", "redirect_map_0", "cls", ""] {
            let why = unnamed(section, None).expect_err(section);
            for says in ["does not tell its type", "--type xdp"] {
                assert!(why.contains(says), "{why}");
            }
            let named = unnamed(section, Some(ProgramKind::Tc));
            assert_eq!(named, Ok(ProgramKind::Tc));
        }
        // What was named is what counts, wherever libbpf knows no better.
        assert_eq!(
            unnamed("xdp_sock", Some(ProgramKind::Tc)),
            Ok(ProgramKind::Tc)
        );
    }

    #[test]
    fn other_programs_say_where_they_run() {
        let why = |kind, section| {
            ProgramKind::from_section(kind, "x.bpf.o", "name", section, Some(ProgramKind::Xdp))
                .expect_err(section)
        };
        for (kind, section, says) in [
            (
                ProgramType::Tracing,
                "iter/task",
                "bpftool iter pin x.bpf.o",
            ),
            (ProgramType::Tracing, "iter.s/task", "iterator is read"),
            (ProgramType::Tracing, "fentry/x", "overhead x.bpf.o:name"),
            (ProgramType::Unspec, "perf_event/cpu", "at a perf event"),
            (ProgramType::Xdp, "xdp/devmap", "redirected through a map"),
            (ProgramType::Xdp, "xdp.frags/cpumap", "SEC(\"xdp\")"),
        ] {
            assert!(why(kind, section).contains(says), "{section}");
        }
    }
}
