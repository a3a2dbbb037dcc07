//! Explains why a function can't be attached to.

use std::fs;

use crate::{
    attach::{Attach, ProgramKind},
    error::{Error, failed, unattachable},
    lockdown, mount,
};

/// Turns the kernel's refusal to attach to a function into what is known of it. Reads the kernel's list of
/// symbols, which takes a while: for failures alone.
pub(in crate::attach) fn explain(
    attach: Attach,
    function: &str,
    source: libbpf_rs::Error,
) -> Error {
    let words = match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => locked_down(),
        _ => unfit(attach, function),
    };
    match words {
        Some(words) => unattachable(attach.name(), format!("{words} ({source})")),
        None => failed(format!("{attach} at {function}"), "attaching it")(source),
    }
}

/// Explains what is wrong with the function itself; `None` if nothing is known to be.
fn unfit(attach: Attach, function: &str) -> Option<String> {
    match count(function)? {
        0 => {
            return Some(format!(
                "this kernel has no function {function}; it may be inlined, or not built into \
                 this kernel; /proc/kallsyms lists all functions"
            ));
        }
        1 => {}
        several => {
            return Some(format!(
                "{function} is ambiguous: {several} functions of this kernel have that name; \
                 attach to a function with a unique name"
            ));
        }
    }
    if attach.kind() == ProgramKind::Kprobe && forbidden(function)? {
        return Some(format!(
            "{function} cannot be probed: the kernel forbids it (it is in debugfs's \
             kprobes/blacklist); attach to a function that calls it"
        ));
    }
    if !traceable(function)? {
        return Some(format!(
            "{function} cannot be traced: it is notrace or in assembly (it is not in tracefs's \
             available_filter_functions); attach to a function that calls it"
        ));
    }
    None
}

/// Counts the functions with that name; `None` where the kernel doesn't show its symbols.
fn count(function: &str) -> Option<usize> {
    let symbols = fs::read_to_string("/proc/kallsyms").ok()?;
    let is_code = |kind: &str| matches!(kind, "t" | "T" | "w" | "W" | "i");
    let mut names = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next().filter(|kind| is_code(kind))?;
        words.next()
    });
    let first = names.next()?;
    Some(usize::from(first == function) + names.filter(|name| *name == function).count())
}

fn forbidden(function: &str) -> Option<bool> {
    let debugfs = mount::open("debugfs").ok()?;
    let list = fs::read_to_string(debugfs.path("kprobes/blacklist")).ok()?;
    // Addresses and a name: `0xffffffff81000000-0xffffffff81000010\tdo_int3`.
    Some(
        list.lines()
            .any(|line| line.split_whitespace().nth(1) == Some(function)),
    )
}

fn traceable(function: &str) -> Option<bool> {
    let tracefs = mount::open("tracefs").ok()?;
    let list = fs::read_to_string(tracefs.path("available_filter_functions")).ok()?;
    Some(
        list.lines()
            .any(|line| line.split_whitespace().next() == Some(function)),
    )
}

fn locked_down() -> Option<String> {
    let mode = lockdown::mode()?;
    Some(format!(
        "this kernel is in lockdown ({mode}), which forbids it; boot without lockdown, or measure in a \
         guest: --on exact:KERNEL"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::require;

    fn said(attach: Attach, function: &str, errno: i32) -> String {
        explain(attach, function, libbpf_rs::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn a_function_that_is_not_there_is_told() {
        let words = said(Attach::Kprobe, "no_such_function", libc::ENOENT);
        assert!(words.contains("no function no_such_function"), "{words}");
    }

    #[test]
    fn a_name_that_several_functions_have_is_told() {
        let symbols = fs::read_to_string("/proc/kallsyms").expect("symbols");
        let mut names: Vec<&str> = symbols
            .lines()
            .filter_map(|line| line.split_once(" t ").map(|(_, name)| name))
            .collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        let twice = twice.expect("names that are not unique")[0];
        let words = said(Attach::Kprobe, twice, libc::EADDRNOTAVAIL);
        assert!(words.contains("is ambiguous"), "{words}");
    }

    #[test]
    fn a_function_that_can_not_be_traced_is_told() {
        // An entry of interrupts, in assembly.
        let entry = "asm_exc_int3";
        if !require::host() {
            return;
        }
        if traceable(entry).is_none() {
            return require::skip_as("features", "this kernel does not list what it can trace");
        }
        let words = said(Attach::KprobeMulti, entry, libc::EINVAL);
        assert!(words.contains("can't be"), "{words}");
    }
}
