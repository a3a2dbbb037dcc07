//! Attaches a loaded program at its hook. Libbpf attaches by sections too, but not at another target than theirs, and
//! at tracepoints and patterns only where tracefs is mounted.

use std::{fs::File, os::fd::AsRawFd as _, path::Path};

use libbpf_rs::{IterOpts, KprobeOpts, Link, NetfilterOpts, ProgramMut, UprobeOpts};

use super::{
    kind::HookKind,
    perf_event,
    section::{Hook, is_pattern},
};
use crate::{
    attach::{self, cgroup_root},
    error::{Error, Result, failed},
};

/// Every process.
const ALL: i32 = -1;

/// Families and hooks of netfilter, as `NFPROTO_…` and `NF_INET_…` number them.
const FAMILIES: [(&str, i32); 2] = [("ipv4", 2), ("ipv6", 10)];
const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
/// After all hooks with a predefined priority (`NF_IP_PRI_…`).
const PRIORITY: i32 = 1000;

/// Attaches a program; the links to it.
pub(super) fn attach(program: &ProgramMut<'_>, hook: &Hook) -> Result<Vec<Link>> {
    let target = hook.target.as_deref();
    let target = target.ok_or_else(|| Error::Refused(super::absent::unnamed(hook)))?;
    let is_return = matches!(
        hook.kind,
        HookKind::Kretprobe
            | HookKind::KretprobeMulti
            | HookKind::Kretsyscall
            | HookKind::Uretprobe
            | HookKind::UretprobeMulti
    );
    let link = match hook.kind {
        HookKind::PerfEvent => return perf_event::attach(program, target),
        HookKind::Tracepoint => return Ok(vec![attach::tracepoint(program, target)?]),
        HookKind::Kprobe => kprobe(program, target),
        HookKind::Kretprobe => {
            program.attach_kprobe_with_opts(is_return, target, KprobeOpts::default())
        }
        HookKind::KprobeMulti | HookKind::KretprobeMulti | HookKind::KprobeSession => {
            let functions = hook.functions()?;
            let is_session = hook.kind == HookKind::KprobeSession;
            attach::multi(program, &functions, is_return, is_session)
        }
        HookKind::Ksyscall | HookKind::Kretsyscall => program.attach_ksyscall(is_return, target),
        HookKind::Fentry
        | HookKind::Fexit
        | HookKind::FmodRet
        | HookKind::Fsession
        | HookKind::TpBtf => program.attach_trace(),
        HookKind::RawTracepoint => program.attach_raw_tracepoint(target),
        HookKind::Lsm => program.attach_lsm(),
        HookKind::Uprobe | HookKind::Uretprobe => uprobe(program, target, is_return)?,
        HookKind::UprobeMulti | HookKind::UretprobeMulti | HookKind::UprobeSession => {
            let (path, pattern) = in_file(target)?;
            let is_session = hook.kind == HookKind::UprobeSession;
            program.attach_uprobe_multi(ALL, path, pattern, is_return, is_session)
        }
        HookKind::Usdt => {
            let (path, marker) = in_file(target)?;
            let (provider, name) = in_file(marker)?;
            program.attach_usdt(ALL, path, provider, name)
        }
        HookKind::Iter => program.attach_iter_with_opts(IterOpts::None),
        HookKind::Cgroup | HookKind::CgroupSkb => cgroup(program, target)?,
        HookKind::Xdp => program.attach_xdp(device(target)?),
        HookKind::SkLookup => program.attach_netns(open(Path::new(target))?.as_raw_fd()),
        HookKind::Netfilter => program.attach_netfilter_with_opts(netfilter(target)?),
        // With its struct.
        HookKind::StructOps => return Ok(Vec::new()),
    };
    let explain = |source| match hook.function() {
        Some(function) => attach::explain(hook.kind.attach(), &function, source),
        None if hook.kind.is_tracepoint() => failed(target, "attaching to the tracepoint")(source),
        None => failed(target, "attaching there")(source),
    };
    Ok(vec![link.map_err(explain)?])
}

fn kprobe(program: &ProgramMut<'_>, target: &str) -> libbpf_rs::Result<Link> {
    let (function, offset) = with_offset(target);
    attach::kprobe(program, function, offset)
}

fn uprobe(
    program: &ProgramMut<'_>,
    target: &str,
    is_return: bool,
) -> Result<libbpf_rs::Result<Link>> {
    let (path, place) = in_file(target)?;
    let (function, offset) = with_offset(place);
    // A number alone is an offset in the file.
    let (function, offset) = match number(function) {
        Some(offset) => (None, offset),
        None => (Some(function.to_owned()), offset),
    };
    let options = UprobeOpts {
        retprobe: is_return,
        func_name: function,
        ..UprobeOpts::default()
    };
    Ok(program.attach_uprobe_with_opts(ALL, path, offset, options))
}

fn cgroup(program: &ProgramMut<'_>, target: &str) -> Result<libbpf_rs::Result<Link>> {
    let root = cgroup_root()?;
    let inner = target.trim_start_matches('/');
    // A path that leads into the mounted hierarchy, or one from its root.
    let folder = match Path::new(target).starts_with(root.path()) {
        true => open(Path::new(target))?,
        false => open(&root.path().join(inner))?,
    };
    Ok(program.attach_cgroup(folder.as_raw_fd()))
}

/// Number of a network device.
fn device(name: &str) -> Result<i32> {
    let file = Path::new("/sys/class/net").join(name).join("ifindex");
    let number = std::fs::read_to_string(&file).ok();
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| {
        Error::Refused(format!(
            "there is no network device {name} here\n  Guests have lo, over which the menu's stimuli send"
        ))
    })
}

fn netfilter(target: &str) -> Result<NetfilterOpts> {
    let parts = target.split_once(':');
    let options = parts.and_then(|(family, hook)| {
        let (_, family) = FAMILIES.into_iter().find(|(name, _)| *name == family)?;
        let hook = HOOKS.iter().position(|name| *name == hook)?;
        Some(NetfilterOpts {
            protocol_family: family,
            hooknum: hook as i32,
            priority: PRIORITY,
            ..NetfilterOpts::default()
        })
    });
    options.ok_or_else(|| {
        Error::Refused(format!(
            "{target} is not a hook of netfilter\n  Hooks are ipv4 or ipv6, a colon, and one of {}",
            HOOKS.join(", ")
        ))
    })
}

impl Hook {
    /// The kernel functions at whose entries or returns the hook is: several if it names them by a pattern.
    pub fn functions(&self) -> Result<Vec<String>> {
        let target = self.target.as_deref().unwrap_or_default();
        if !(self.kind.is_multi() && is_pattern(target)) {
            return Ok(self.function().into_iter().collect());
        }
        let functions = attach::traceable_like(target);
        functions.filter(|all| !all.is_empty()).ok_or_else(|| {
            Error::Refused(format!(
                "no function that this kernel can trace is like {target}"
            ))
        })
    }
}

fn in_file(target: &str) -> Result<(&str, &str)> {
    target
        .split_once(':')
        .ok_or_else(|| Error::Refused(format!("{target} does not name a place in a file")))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(failed(path.display().to_string(), "opening it"))
}

/// A function's name and an offset behind it.
fn with_offset(target: &str) -> (&str, usize) {
    let parts = target.rsplit_once('+');
    parts
        .and_then(|(function, offset)| Some((function, number(offset)?)))
        .unwrap_or((target, 0))
}

/// A number as C writes it.
fn number(text: &str) -> Option<usize> {
    match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_offsets_and_hooks_numbers() {
        assert_eq!(with_offset("f+0x1f"), ("f", 31));
        assert_eq!(with_offset("operator+"), ("operator+", 0));
        let options = netfilter("ipv6:output").expect("a hook");
        assert_eq!((options.protocol_family, options.hooknum), (10, 3));
        let error = netfilter("ipv4:out").expect_err("no hook").to_string();
        assert!(error.contains("postrouting"), "{error}");
    }
}
