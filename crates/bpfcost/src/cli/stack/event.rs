//! Events as the command line names them: a function or a tracepoint, and how to attach to it.

use anyhow::Result;
use bpfcost_bpf::{
    attach::{AttachMethod, Counter},
    stack_counter::{self, StackCounter, StackEvent},
    unwind::KernelSymbols,
};
use clap::ValueEnum;

use crate::cli::exit::{lacking, usage};
use bpfcost_text::suggest;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum AttachChoice {
    /// A kprobe on a function
    Kprobe,
    /// A trampoline at the entry of one function
    Fentry,
    /// A tracepoint itself
    #[value(name = "raw_tp")]
    RawTp,
    /// A tracepoint through perf
    Tracepoint,
}

impl AttachChoice {
    fn method(self) -> AttachMethod {
        match self {
            AttachChoice::Kprobe => AttachMethod::Kprobe,
            AttachChoice::Fentry => AttachMethod::Fentry,
            AttachChoice::RawTp => AttachMethod::RawTp,
            AttachChoice::Tracepoint => AttachMethod::Tracepoint,
        }
    }
}

/// An event as the command line spells it, without the prefix of bpftrace, and the attach type that this implies.
fn parse(spelled: &str) -> Result<(&str, Option<AttachMethod>)> {
    let Some((prefix, name)) = spelled.split_once(':') else {
        return Ok((spelled, None));
    };
    let of_function = |method| match name.split_once(':') {
        // kprobe:MODULE:FUNCTION
        Some((_, function)) => (function, Some(method)),
        None => (name, Some(method)),
    };
    Ok(match prefix {
        "tracepoint" | "t" if name.contains(':') => (name, None),
        "rawtracepoint" | "rt" if name.contains(':') => (name, Some(AttachMethod::RawTp)),
        "kprobe" | "k" => of_function(AttachMethod::Kprobe),
        "fentry" | "kfunc" | "f" => of_function(AttachMethod::Fentry),
        "kretprobe" | "kr" | "fexit" | "kretfunc" | "fr" | "uprobe" | "u" | "uretprobe" | "ur"
        | "usdt" | "U" | "profile" | "p" | "interval" | "i" | "software" | "s" | "hardware"
        | "h" | "iter" | "it" => {
            return Err(usage(format!(
                "stack takes no {prefix}\n  Name a function of the kernel (kprobe:FUNCTION, fentry:FUNCTION), where it begins, \
                 or a tracepoint (category:name)"
            )));
        }
        _ => (spelled, None),
    })
}

/// How to attach to what was named.
pub(super) fn event_of(
    spelled: &str,
    choice: Option<AttachChoice>,
    symbols: &KernelSymbols,
) -> Result<StackEvent> {
    let (name, implied) = parse(spelled)?;
    let is_tracepoint = name.contains(':');
    let chosen = choice.map(AttachChoice::method).or(implied);
    if let Some(method) = chosen
        && method.takes_tracepoints() != is_tracepoint
    {
        return Err(usage(if is_tracepoint {
            format!(
                "{name} is a tracepoint\n  Attach with raw_tp or tracepoint, or name a function"
            )
        } else {
            format!(
                "{name} is a function\n  Attach with kprobe or fentry, or name a tracepoint: category:name"
            )
        }));
    }
    if is_tracepoint {
        check_spelling(name)?;
    } else {
        check_function(name, symbols)?;
    }
    let candidates = match (chosen, is_tracepoint) {
        (Some(method), _) => vec![method],
        (None, true) => vec![AttachMethod::RawTp, AttachMethod::Tracepoint],
        (None, false) => vec![AttachMethod::Kprobe, AttachMethod::Fentry],
    };
    let (mut lacks, mut absent) = (Vec::new(), None);
    for method in candidates {
        let missing = StackCounter::needs(method)
            .into_iter()
            .find_map(|feature| feature.missing().transpose());
        if let Some(lack) = missing.transpose()? {
            lacks.push(lack.to_string());
            continue;
        }
        // Those of system calls exist through perf alone.
        match Counter::absent(method, name)? {
            None => return Ok((method, name.to_owned())),
            why => absent = why,
        }
    }
    if let Some(why) = absent {
        let known = stack_counter::tracepoints();
        let near = if known.iter().any(|one| one == name) {
            String::new()
        } else {
            suggest(name, known.iter().map(String::as_str))
        };
        return Err(usage(format!(
            "{name}: {why}{near}\n  List them: grep NAME /sys/kernel/tracing/available_events"
        )));
    }
    let instead = if is_tracepoint {
        ""
    } else {
        "\n  Name a tracepoint instead; list them: grep NAME /sys/kernel/tracing/available_events"
    };
    Err(lacking(format!(
        "cannot attach to {name}\n  {}{instead}",
        lacks.join("\n  ")
    )))
}

/// A tracepoint has a category and a name.
fn check_spelling(name: &str) -> Result<()> {
    let is_name = |part: &str| !part.is_empty() && !part.contains(['/', '*', '?', ':']);
    if (name.split_once(':')).is_some_and(|(category, event)| is_name(category) && is_name(event)) {
        return Ok(());
    }
    Err(usage(format!(
        "{name} is not a tracepoint\n  Write category:name, e.g. sched:sched_switch"
    )))
}

/// A function must be one of the kernel's, and one alone.
fn check_function(name: &str, symbols: &KernelSymbols) -> Result<()> {
    let named: Vec<_> = symbols.functions_named(name).collect();
    match named.len() {
        0 => {
            // A tracepoint without its category?
            let tracepoints = stack_counter::tracepoints();
            let named = tracepoints
                .iter()
                .find(|one| one.split(':').nth(1) == Some(name));
            if let Some(tracepoint) = named {
                return Err(usage(format!(
                    "the kernel has no function {name}, but a tracepoint\n  Write {tracepoint}"
                )));
            }
            if let Some(made) = made_of(name, symbols) {
                return Err(usage(format!(
                    "the kernel has no function {name}, but {made}, which the compiler made of it\n  Write {made}"
                )));
            }
            let near = suggest(name, symbols.function_names());
            Err(usage(format!(
                "the kernel has no function {name}{near}\n  It may be inlined, or part of a module that is not loaded. \
                 List them: grep -i NAME /proc/kallsyms"
            )))
        }
        1 => Ok(()),
        many => {
            let modules: Vec<&str> = named
                .iter()
                .map(|one| one.module.unwrap_or("vmlinux"))
                .collect();
            Err(usage(format!(
                "{name} is ambiguous: {many} functions have this name ({})\n  Name one of their callers, or a tracepoint",
                modules.join(", ")
            )))
        }
    }
}

/// What the compiler made of a function: a copy for some callers, or a part that is not inlined. (What follows `.cold`
/// is no function.)
fn made_of<'a>(name: &str, symbols: &'a KernelSymbols) -> Option<&'a str> {
    let is_made = |one: &&str| {
        let ending = one.strip_prefix(name).unwrap_or_default();
        [".isra.", ".constprop.", ".part."]
            .iter()
            .any(|made| ending.starts_with(made))
            && !ending.contains(".cold")
    };
    symbols.function_names().find(is_made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_spelled_as_bpftrace_does() {
        for (spelled, name, implied) in [
            ("vfs_read", "vfs_read", None),
            ("sched:sched_switch", "sched:sched_switch", None),
            ("tracepoint:sched:sched_switch", "sched:sched_switch", None),
            ("t:sched:sched_switch", "sched:sched_switch", None),
            (
                "rawtracepoint:sched:sched_switch",
                "sched:sched_switch",
                Some(AttachMethod::RawTp),
            ),
            ("kprobe:vfs_read", "vfs_read", Some(AttachMethod::Kprobe)),
            ("k:vmlinux:vfs_read", "vfs_read", Some(AttachMethod::Kprobe)),
            (
                "fentry:vmlinux:vfs_read",
                "vfs_read",
                Some(AttachMethod::Fentry),
            ),
            ("kfunc:vfs_read", "vfs_read", Some(AttachMethod::Fentry)),
        ] {
            assert_eq!(parse(spelled).expect(spelled), (name, implied), "{spelled}");
        }
        for other in ["kretprobe:vfs_read", "profile:hz:99", "uprobe:/bin/sh:main"] {
            let refused = parse(other).expect_err(other).to_string();
            assert!(refused.starts_with("stack takes no"), "{refused}");
        }
    }

    #[test]
    fn what_the_compiler_made_of_a_function_is_found() {
        let list = "\
ffffffff81000000 t do_it.cold
ffffffff81000100 t do_it.isra.0.cold
ffffffff81000200 t do_it_now.isra.0
ffffffff81000300 t do_it.isra.0
ffffffff81000400 t other.part.0.constprop.0
";
        let symbols = KernelSymbols::parse(list);
        assert_eq!(made_of("do_it", &symbols), Some("do_it.isra.0"));
        assert_eq!(made_of("other", &symbols), Some("other.part.0.constprop.0"));
        assert_eq!(made_of("do", &symbols), None);
        let refused = check_function("do_it", &symbols).expect_err("there is none");
        assert!(
            refused.to_string().contains("Write do_it.isra.0"),
            "{refused}"
        );
    }
}
