//! Programs and the hooks that their sections name, as libbpf reads them (its `section_defs`).

use std::fmt;

use libbpf_rs::ProgramType;
use serde::{Deserialize, Serialize};

use super::{kind::HookKind, struct_ops};
use crate::{
    error::{Error, Result},
    program::{ObjectFile, program_type},
};

/// A program of an object, and its hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// The program's name.
    pub program: String,
    /// ELF section, such as `kprobe/tcp_connect`.
    pub section: String,
    /// Kind of the hook.
    pub kind: HookKind,
    /// Function, `category:name`, tracepoint, `path:function`, …; `None` where the object's own loader names it.
    pub target: Option<String>,
    /// True if the program may sleep.
    #[serde(default)]
    pub sleepable: bool,
    /// True if the object's own loader decides to load it (`SEC("?…")`).
    #[serde(default)]
    pub optional: bool,
}

/// Beginnings of sections, up to the first slash and without the `.s` of programs that may sleep.
const SECTIONS: [(&str, HookKind); 36] = [
    ("kprobe", HookKind::Kprobe),
    ("kretprobe", HookKind::Kretprobe),
    ("kprobe.multi", HookKind::KprobeMulti),
    ("kretprobe.multi", HookKind::KretprobeMulti),
    ("kprobe.session", HookKind::KprobeSession),
    ("ksyscall", HookKind::Ksyscall),
    ("kretsyscall", HookKind::Kretsyscall),
    ("fentry", HookKind::Fentry),
    ("fexit", HookKind::Fexit),
    ("fmod_ret", HookKind::FmodRet),
    ("fsession", HookKind::Fsession),
    ("tracepoint", HookKind::Tracepoint),
    ("tp", HookKind::Tracepoint),
    ("raw_tracepoint", HookKind::RawTracepoint),
    ("raw_tp", HookKind::RawTracepoint),
    ("raw_tracepoint.w", HookKind::RawTracepoint),
    ("raw_tp.w", HookKind::RawTracepoint),
    ("tp_btf", HookKind::TpBtf),
    ("lsm", HookKind::Lsm),
    ("lsm_cgroup", HookKind::Cgroup),
    ("uprobe", HookKind::Uprobe),
    ("uretprobe", HookKind::Uretprobe),
    ("uprobe.multi", HookKind::UprobeMulti),
    ("uretprobe.multi", HookKind::UretprobeMulti),
    ("uprobe.session", HookKind::UprobeSession),
    ("usdt", HookKind::Usdt),
    ("perf_event", HookKind::PerfEvent),
    ("iter", HookKind::Iter),
    ("cgroup", HookKind::Cgroup),
    ("sockops", HookKind::Cgroup),
    ("cgroup_skb", HookKind::CgroupSkb),
    ("sk_lookup", HookKind::SkLookup),
    ("xdp", HookKind::Xdp),
    ("xdp.frags", HookKind::Xdp),
    ("netfilter", HookKind::Netfilter),
    ("struct_ops", HookKind::StructOps),
];

/// Functions that stand for those that an object's own loader names (libbpf-tools): each begins so, or is the last one.
const PLACEHOLDERS: [&str; 2] = ["dummy", "placeholder"];
const PLACEHOLDER: &str = "foo";

/// The root of the hierarchy of control groups.
const ROOT_GROUP: &str = "/";
/// Network namespace of the process that attaches.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// Beginnings of the functions of system calls.
const SYSCALL: &str = if cfg!(target_arch = "x86_64") {
    "__x64_sys_"
} else {
    "__arm64_sys_"
};

impl ObjectFile {
    /// The programs that attach to hooks, in their order in the file: also those that can be run in a loop, whose sections
    /// name no target, except those at raw tracepoints.
    pub fn hooks(&self) -> Result<Vec<Hook>> {
        let object = self.opened()?;
        let placed = struct_ops::placed(self, &object)?;
        let hook = |program: libbpf_rs::OpenProgram<'_>| {
            let (name, section) = (program.name().to_string_lossy(), program.section());
            let section = section.to_string_lossy();
            if program_type(program.prog_type(), &section) == ProgramType::Unspec {
                return None;
            }
            let hook = Hook::parse(&name, &section)?;
            let mut members = placed.iter().filter(|one| one.program == name);
            Some(Hook {
                optional: !program.autoload(),
                target: members
                    .next()
                    .map_or(hook.target, |one| Some(one.member.clone())),
                ..hook
            })
        };
        Ok(object.progs().filter_map(hook).collect())
    }
}

impl Hook {
    /// Parses a section's name; `None` of a section that names no kind of hook.
    pub(super) fn parse(program: &str, section: &str) -> Option<Self> {
        let begin = section.split('/').next().unwrap_or_default();
        let plain = begin.strip_suffix(".s");
        let begin = plain.unwrap_or(begin);
        let (_, kind) = SECTIONS.into_iter().find(|(known, _)| *known == begin)?;
        Some(Hook {
            program: program.to_owned(),
            section: section.to_owned(),
            kind,
            target: target(kind, rest(section)),
            sleepable: plain.is_some(),
            optional: false,
        })
    }

    /// The function or other place that the section names, also where that only stands for one.
    pub fn section_target(&self) -> Option<&str> {
        rest(&self.section)
    }

    /// The same program at another target, in the form of [`HookKind::form`]. A kprobe's may be in a file,
    /// `path:function`: uprobes are programs of the same type.
    pub fn at(&self, target: &str) -> Result<Hook> {
        let kind = match self.kind {
            HookKind::Kprobe if target.contains(':') => HookKind::Uprobe,
            HookKind::Kretprobe if target.contains(':') => HookKind::Uretprobe,
            HookKind::StructOps => {
                return Err(Error::Refused(format!(
                    "{} is called where its object's struct has it, and nowhere else\n  Name no hook for it",
                    self.program
                )));
            }
            kind => kind,
        };
        let parts = kind.form().split(':').count();
        let is_whole = target.splitn(parts, ':').filter(|part| !part.is_empty());
        if is_whole.count() != parts {
            return Err(Error::Refused(format!(
                "{target} does not name a hook of {}\n  A {kind} is at {}",
                self.program,
                kind.form()
            )));
        }
        Ok(Hook {
            kind,
            target: Some(target.to_owned()),
            ..self.clone()
        })
    }

    /// The kernel function at whose entry or return the hook is; `None` for hooks that are not at a function, and for patterns.
    pub fn function(&self) -> Option<String> {
        function(self.kind, self.target.as_deref()?)
    }

    /// The target, where the program has to be loaded for another one than the section names.
    pub(super) fn load_target(&self) -> Option<&str> {
        let target = self.target.as_deref()?;
        let differs = self.section_target() != Some(target);
        (self.kind.is_loaded_for_target() && differs).then_some(target)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{} {target}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

/// The part of a section's name behind its first slash.
fn rest(section: &str) -> Option<&str> {
    let (_, rest) = section.split_once('/')?;
    (!rest.is_empty()).then_some(rest)
}

pub(super) fn function(kind: HookKind, target: &str) -> Option<String> {
    // A module may stand before it.
    let (_, name) = target.rsplit_once(':').unwrap_or(("", target));
    let (name, _) = name.split_once('+').unwrap_or((name, ""));
    let name = match kind {
        HookKind::Kprobe
        | HookKind::Kretprobe
        | HookKind::KprobeMulti
        | HookKind::KretprobeMulti
        | HookKind::KprobeSession
        | HookKind::Fentry
        | HookKind::Fexit
        | HookKind::FmodRet
        | HookKind::Fsession => name.to_owned(),
        HookKind::Ksyscall | HookKind::Kretsyscall => format!("{SYSCALL}{name}"),
        HookKind::Lsm => format!("bpf_lsm_{name}"),
        _ => return None,
    };
    (!is_pattern(&name)).then_some(name)
}

pub(super) fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

fn target(kind: HookKind, rest: Option<&str>) -> Option<String> {
    let of_parts = |parts: usize| {
        let rest = rest?;
        let named = rest.splitn(parts, ':').filter(|part| !part.is_empty());
        (named.count() == parts).then(|| rest.to_owned())
    };
    match kind {
        HookKind::Tracepoint => {
            let (category, name) = rest?.split_once('/')?;
            (!category.is_empty() && !name.is_empty()).then(|| format!("{category}:{name}"))
        }
        HookKind::Uprobe
        | HookKind::Uretprobe
        | HookKind::UprobeMulti
        | HookKind::UretprobeMulti
        | HookKind::UprobeSession => of_parts(2),
        HookKind::Usdt => of_parts(3),
        HookKind::PerfEvent
        | HookKind::Netfilter
        | HookKind::StructOps
        | HookKind::CgroupSkb
        | HookKind::Xdp => None,
        HookKind::Cgroup => Some(ROOT_GROUP.to_owned()),
        HookKind::SkLookup => Some(OWN_NAMESPACE.to_owned()),
        _ => {
            let name = rest?;
            let stands = PLACEHOLDERS.iter().any(|begin| name.starts_with(begin));
            (!stands && name != PLACEHOLDER).then(|| name.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(section: &str) -> Hook {
        Hook::parse("p", section).unwrap_or_else(|| panic!("{section}"))
    }

    #[test]
    fn sections_name_kinds_and_targets() {
        for (section, kind, target) in [
            ("kprobe/tcp_connect", HookKind::Kprobe, Some("tcp_connect")),
            ("kprobe/f+0x10", HookKind::Kprobe, Some("f+0x10")),
            ("kprobe", HookKind::Kprobe, None),
            ("kretprobe/dummy_file_read", HookKind::Kretprobe, None),
            ("kprobe/foo", HookKind::Kprobe, None),
            ("kprobe.multi/tcp_*", HookKind::KprobeMulti, Some("tcp_*")),
            ("kretprobe.multi/f", HookKind::KretprobeMulti, Some("f")),
            ("kprobe.session/f", HookKind::KprobeSession, Some("f")),
            ("ksyscall/openat", HookKind::Ksyscall, Some("openat")),
            ("kretsyscall/openat", HookKind::Kretsyscall, Some("openat")),
            ("fentry.s/vfs_read", HookKind::Fentry, Some("vfs_read")),
            ("fexit/vfs_read", HookKind::Fexit, Some("vfs_read")),
            ("fmod_ret/f", HookKind::FmodRet, Some("f")),
            ("fsession/f", HookKind::Fsession, Some("f")),
            (
                "tp/sched/sched_switch",
                HookKind::Tracepoint,
                Some("sched:sched_switch"),
            ),
            ("tracepoint/a/b", HookKind::Tracepoint, Some("a:b")),
            ("tracepoint/a", HookKind::Tracepoint, None),
            (
                "raw_tp/sys_enter",
                HookKind::RawTracepoint,
                Some("sys_enter"),
            ),
            ("raw_tracepoint.w/x", HookKind::RawTracepoint, Some("x")),
            ("tp_btf/sched_switch", HookKind::TpBtf, Some("sched_switch")),
            ("lsm.s/file_open", HookKind::Lsm, Some("file_open")),
            (
                "uprobe//bin/sh:main",
                HookKind::Uprobe,
                Some("/bin/sh:main"),
            ),
            ("uretprobe/readline", HookKind::Uretprobe, None),
            ("uprobe.multi//a:b*", HookKind::UprobeMulti, Some("/a:b*")),
            (
                "uretprobe.multi.s//a:b",
                HookKind::UretprobeMulti,
                Some("/a:b"),
            ),
            ("uprobe.session/a:b", HookKind::UprobeSession, Some("a:b")),
            ("usdt", HookKind::Usdt, None),
            (
                "usdt/libc.so.6:libc:setjmp",
                HookKind::Usdt,
                Some("libc.so.6:libc:setjmp"),
            ),
            ("perf_event", HookKind::PerfEvent, None),
            ("iter.s/task", HookKind::Iter, Some("task")),
            ("cgroup/connect4", HookKind::Cgroup, Some("/")),
            ("sockops", HookKind::Cgroup, Some("/")),
            ("lsm_cgroup/socket_bind", HookKind::Cgroup, Some("/")),
            ("sk_lookup", HookKind::SkLookup, Some("/proc/self/ns/net")),
            ("cgroup_skb/ingress", HookKind::CgroupSkb, None),
            ("xdp", HookKind::Xdp, None),
            ("xdp.frags/a", HookKind::Xdp, None),
            ("netfilter", HookKind::Netfilter, None),
            ("struct_ops.s/init", HookKind::StructOps, None),
        ] {
            let hook = hook(section);
            assert_eq!(
                (hook.kind, hook.target.as_deref()),
                (kind, target),
                "{section}"
            );
            assert_eq!(hook.sleepable, section.contains(".s/"), "{section}");
        }
        for section in ["tc", "kprobes/f", ".text", ""] {
            assert_eq!(Hook::parse("p", section), None, "{section}");
        }
    }

    #[test]
    fn functions_are_those_of_the_kernel() {
        for (section, function) in [
            ("kprobe/f+0x10", Some("f")),
            ("fentry/nf_tables:nft_do_chain", Some("nft_do_chain")),
            ("lsm/file_open", Some("bpf_lsm_file_open")),
            ("kprobe.multi/tcp_*", None),
            ("kprobe", None),
            ("tp_btf/sched_switch", None),
        ] {
            assert_eq!(hook(section).function().as_deref(), function, "{section}");
        }
        let call = hook("ksyscall/openat").function().expect("a function");
        assert!(call.ends_with("_sys_openat"), "{call}");
    }

    #[test]
    fn another_target_has_the_form_of_its_kind() {
        let moved = hook("kprobe/dummy_file_read")
            .at("ext4_file_read_iter")
            .expect("a target");
        assert_eq!(moved.function().as_deref(), Some("ext4_file_read_iter"));
        assert_eq!(moved.load_target(), None);
        let file = hook("kretprobe/handle_return")
            .at("libc.so.6:getaddrinfo")
            .expect("a target");
        assert_eq!(file.kind, HookKind::Uretprobe);
        let typed = hook("fexit/dummy_file_read")
            .at("ext4_file_read_iter")
            .expect("a target");
        assert_eq!(typed.load_target(), Some("ext4_file_read_iter"));
        assert_eq!(hook("fentry/vfs_read").load_target(), None);
        for (section, target) in [("tp/a/b", "b"), ("usdt", "libc:setjmp"), ("kprobe/f", "")] {
            let error = hook(section).at(target).expect_err(section).to_string();
            assert!(error.contains("does not name a hook"), "{error}");
        }
    }
}
