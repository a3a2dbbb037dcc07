//! Reasons why this kernel has no such hook.

use std::path::Path;

use libbpf_rs::{
    Btf,
    btf::types::{Func, Struct},
};

use super::{
    kind::HookKind,
    perf_event,
    section::{Hook, is_pattern},
};
use crate::{
    attach,
    error::{Error, Result},
};

impl Hook {
    /// Returns the reason why the program can't be attached on this kernel, or `None` where nothing is known to be in the
    /// way.
    pub fn absent(&self) -> Result<Option<String>> {
        let Some(target) = &self.target else {
            return Ok(Some(unnamed(self)));
        };
        for feature in self.kind.needs() {
            if let Some(missing) = feature.missing()? {
                return Ok(Some(missing.to_string()));
            }
        }
        if let Some(function) = self.function() {
            let absent = attach::unfit(self.kind.attach(), &function);
            return Ok(absent.map(|words| self.with_advice(words)));
        }
        Ok(match self.kind {
            kind if kind.is_multi() && is_pattern(target) => {
                let like = attach::traceable_like(target);
                let is_none = like.is_some_and(|all| all.is_empty());
                is_none.then(|| format!("no function that this kernel can trace is like {target}"))
            }
            HookKind::Tracepoint => match attach::tracepoint_number(target) {
                Ok(_) => None,
                Err(Error::Unattachable { words, .. }) => Some(words),
                Err(other) => return Err(other),
            },
            HookKind::RawTracepoint | HookKind::TpBtf => no_tracepoint(target),
            HookKind::PerfEvent => perf_event::unknown(target),
            HookKind::Iter => no_iterator(target),
            HookKind::StructOps => no_struct(target),
            HookKind::SkLookup => no_beginning(),
            kind if kind.is_in_file() => no_file(target),
            _ => None,
        })
    }

    /// The function may only stand for another one.
    fn with_advice(&self, words: String) -> String {
        format!(
            "{words}\n  If the object's own loader names the function: --at {}=FUNCTION",
            self.program
        )
    }
}

/// The reason where a section names no target.
pub(super) fn unnamed(hook: &Hook) -> String {
    if hook.kind == HookKind::StructOps {
        return "no struct of the object has it".to_owned();
    }
    let (what, example) = match hook.kind {
        HookKind::PerfEvent => ("event", " (page-faults, cpu-clock, …)"),
        HookKind::Netfilter => ("hook", " (ipv4:output, …)"),
        HookKind::CgroupSkb => ("control group", " (/, …)"),
        HookKind::Xdp => ("device", " (lo)"),
        kind if kind.is_tracepoint() => ("tracepoint", ""),
        _ => ("function", ""),
    };
    format!(
        "its loader names the {what}: --at {}={}{example}",
        hook.program,
        hook.kind.form()
    )
}

/// Each tracepoint has a function that calls its programs one after the other.
fn no_tracepoint(name: &str) -> Option<String> {
    let iterates = attach::has_function(&format!("__traceiter_{name}"));
    (iterates == Some(false)).then(|| {
        format!(
            "this kernel has no tracepoint {name}; tracefs's available_events lists all tracepoints"
        )
    })
}

/// Each iterator has a function in the kernel's types; a struct may have the same name.
fn no_iterator(name: &str) -> Option<String> {
    let types = Btf::from_vmlinux().ok()?;
    let function = format!("bpf_iter_{name}");
    let is_function = |number: u32| {
        let kind = types.type_by_id::<Func<'_>>(number.into());
        kind.and_then(|kind| kind.name())
            .is_some_and(|name| name == function.as_str())
    };
    let has_function = (1..types.len() as u32).any(is_function);
    (!has_function).then(|| format!("this kernel has no iterator {name}"))
}

/// For each struct that programs can fill, the kernel's types have another one, which holds it and its state.
fn no_struct(member: &str) -> Option<String> {
    let types = Btf::from_vmlinux().ok()?;
    let (name, _) = member.split_once('.')?;
    let is_there = types
        .type_by_name::<Struct<'_>>(&format!("bpf_struct_ops_{name}"))
        .is_some();
    let needs = match name {
        "sched_ext_ops" => " (Linux 6.12 with CONFIG_SCHED_CLASS_EXT)",
        _ => "",
    };
    (!is_there).then(|| format!("this kernel's own types have no struct_ops {name}{needs}"))
}

/// Before Linux 6.6, the lookup of a socket has its programs' dispatch inlined.
fn no_beginning() -> Option<String> {
    (attach::has_function("inet_lookup_run_sk_lookup") == Some(false)).then(|| {
        "this kernel runs such programs in the middle of a socket's lookup, and a trace does not show where that begins
  Linux 6.6 and later have a function for it: --on exact:6.12"
            .to_owned()
    })
}

/// Names without a folder are looked for where libraries and programs are, by libbpf.
fn no_file(target: &str) -> Option<String> {
    let (path, _) = target.split_once(':')?;
    let is_gone = path.contains('/') && !Path::new(path).exists();
    is_gone.then(|| format!("there is no file {path} here"))
}
