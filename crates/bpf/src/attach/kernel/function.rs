//! Explains why a function can't be attached to.

use std::{
    collections::{HashMap, HashSet},
    fs,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::all::names_of;
use crate::{
    attach::{Attach, ProgramKind},
    error::{Error, failed, unattachable},
    lockdown, mount,
    unwind::{KALLSYMS, KernelSymbols},
};

/// Turns the kernel's refusal to attach to a function into what is known of it. Reads the kernel's list of
/// symbols, which takes a while: for failures alone.
pub(crate) fn explain(attach: Attach, function: &str, source: libbpf_rs::Error) -> Error {
    let words = match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => locked_down(),
        _ => unique(attach, function),
    };
    match words {
        Some(words) => unattachable(attach.name(), format!("{words} ({source})")),
        None => failed(format!("{attach} at {function}"), "attaching it")(source),
    }
}

/// Explains what is wrong with the function itself; `None` if nothing is known to be.
fn unique(attach: Attach, function: &str) -> Option<String> {
    match Lists::get().count(function)? {
        0 | 1 => unfit(attach, function),
        several => Some(format!(
            "{function} is ambiguous: {several} functions of this kernel have that name; \
             attach to a function with a unique name"
        )),
    }
}

/// Explains why no function of that name can be attached to; `None` if nothing is known to be in the way.
pub(crate) fn unfit(attach: Attach, function: &str) -> Option<String> {
    let lists = Lists::get();
    if lists.count(function)? == 0 {
        return Some(match lists.variant(function) {
            Some(variant) => format!(
                "this kernel has no function {function}, only {variant}, which the compiler made of it"
            ),
            None => format!(
                "this kernel has no function {function}; it may be inlined, or not built into \
                 this kernel; /proc/kallsyms lists all functions"
            ),
        });
    }
    if attach.kind() == ProgramKind::Kprobe && lists.forbidden()?.contains(function) {
        return Some(format!(
            "{function} cannot be probed: the kernel forbids it (it is in debugfs's \
             kprobes/blacklist); attach to a function that calls it"
        ));
    }
    if !lists.is_traceable(function)? {
        return Some(format!(
            "{function} cannot be traced: it is notrace, as inline functions are, or in assembly (it is not in tracefs's \
             available_filter_functions); attach to a function that calls it"
        ));
    }
    None
}

/// Returns true if this kernel has a function of that name; `None` where it doesn't show its symbols.
pub(crate) fn has_function(name: &str) -> Option<bool> {
    Some(Lists::get().count(name)? > 0)
}

/// The functions that can be traced and whose names match a pattern of `*` and `?`; `None` where the kernel does not list
/// them.
pub(crate) fn traceable_like(pattern: &str) -> Option<Vec<String>> {
    let lists = Lists::get();
    let all = lists.traceable()?.iter();
    let like = all.filter(|name| matches(pattern.as_bytes(), name.as_bytes()));
    let mut like: Vec<String> = like.map(ToString::to_string).collect();
    like.sort_unstable();
    Some(like)
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => matches(pattern, name),
        ([one, pattern @ ..], [other, name @ ..]) => one == other && matches(pattern, name),
        _ => false,
    }
}

/// The kernel's symbols, read once for each set of modules: those of BPF programs and trampolines may be older.
pub(crate) fn symbols() -> crate::error::Result<Arc<KernelSymbols>> {
    let lists = Lists::get();
    let symbols = lists.symbols().cloned().unwrap_or_default();
    symbols.shown().map(|()| symbols.clone())
}

/// Reads all of the kernel's lists of functions that it shows.
pub(crate) fn read_lists() {
    let lists = Lists::get();
    let _ = (lists.functions(), lists.forbidden(), lists.traceable());
}

/// The kernel's lists of functions, each read when it is first asked for: that takes an emulated guest seconds.
#[derive(Default)]
struct Lists {
    symbols: OnceLock<Option<Arc<KernelSymbols>>>,
    /// Addresses of the functions of each name.
    functions: OnceLock<Option<HashMap<Box<str>, Vec<u64>>>>,
    forbidden: OnceLock<Option<HashSet<Box<str>>>>,
    traceable: OnceLock<Option<HashSet<Box<str>>>>,
}

impl Lists {
    /// Returns the lists, which are read anew for each set of modules.
    fn get() -> Arc<Self> {
        type Read = (String, Arc<Lists>);
        static READ: Mutex<Option<Read>> = Mutex::new(None);
        let modules = names_of(&fs::read_to_string("/proc/modules").unwrap_or_default());
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        match &*read {
            Some((of, lists)) if *of == modules => Arc::clone(lists),
            _ => Arc::clone(&read.insert((modules, Arc::default())).1),
        }
    }

    /// Counts the functions with that name; `None` where the kernel doesn't show its symbols.
    fn count(&self, function: &str) -> Option<usize> {
        let functions = self.functions()?;
        Some(functions.get(function).map_or(0, Vec::len))
    }

    /// Returns true if it is listed, by its own name or by another one of the same code. Of several names, such as
    /// `__x64_sys_getppid` and `__do_sys_getppid`, the kernel lists one.
    fn is_traceable(&self, function: &str) -> Option<bool> {
        let traceable = self.traceable()?;
        if traceable.contains(function) {
            return Some(true);
        }
        let functions = self.functions()?;
        let addresses = functions.get(function)?;
        if addresses.contains(&0) {
            return None;
        }
        let is_same = |others: &Vec<u64>| others.iter().any(|other| addresses.contains(other));
        let mut same = functions.iter().filter(|(_, others)| is_same(others));
        Some(same.any(|(name, _)| traceable.contains(name)))
    }

    /// A name such as `function.isra.0`.
    fn variant(&self, function: &str) -> Option<String> {
        let is_variant = |name: &&str| {
            let rest = name.strip_prefix(function);
            rest.is_some_and(|rest| rest.starts_with('.') && !rest.starts_with(".cold"))
        };
        let names = self.functions()?.keys().map(|name| &**name);
        let variants = names.filter(is_variant);
        variants.min().map(ToString::to_string)
    }

    fn symbols(&self) -> Option<&Arc<KernelSymbols>> {
        let read = || {
            let text = fs::read_to_string(KALLSYMS).ok()?;
            Some(Arc::new(KernelSymbols::parse(text)))
        };
        self.symbols.get_or_init(read).as_ref()
    }

    fn functions(&self) -> Option<&HashMap<Box<str>, Vec<u64>>> {
        let read = || {
            let mut functions: HashMap<Box<str>, Vec<u64>> = HashMap::new();
            for (name, address) in self.symbols()?.starting_with("") {
                functions.entry(name.into()).or_default().push(address);
            }
            (!functions.is_empty()).then_some(functions)
        };
        self.functions.get_or_init(read).as_ref()
    }

    fn forbidden(&self) -> Option<&HashSet<Box<str>>> {
        // Addresses and a name: `0xffffffff81000000-0xffffffff81000010\tdo_int3`.
        let read = || listed("debugfs", "kprobes/blacklist", 1);
        self.forbidden.get_or_init(read).as_ref()
    }

    fn traceable(&self) -> Option<&HashSet<Box<str>>> {
        let read = || listed("tracefs", "available_filter_functions", 0);
        self.traceable.get_or_init(read).as_ref()
    }
}

/// Names at one place of the lines of a list.
fn listed(kind: &'static str, list: &str, place: usize) -> Option<HashSet<Box<str>>> {
    let text = fs::read_to_string(mount::open(kind).ok()?.path(list)).ok()?;
    let names = text.lines();
    let names = names.filter_map(|line| line.split_whitespace().nth(place));
    Some(names.map(Box::from).collect())
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
    fn patterns_match_names() {
        let like = |pattern: &str, name: &str| matches(pattern.as_bytes(), name.as_bytes());
        assert!(like("tcp_*_connect", "tcp_v4_connect"));
        assert!(like("tcp_v?_connect", "tcp_v6_connect"));
        assert!(like("*", ""));
        assert!(!like("tcp_*", "udp_sendmsg"));
        assert!(!like("tcp", "tcp_connect"));
    }

    #[test]
    fn a_function_that_can_not_be_traced_is_told() {
        // An entry of interrupts, in assembly.
        let entry = "asm_exc_int3";
        if !require::host() {
            return;
        }
        if Lists::get().traceable().is_none() {
            return require::skip_as("features", "this kernel does not list what it can trace");
        }
        let words = said(Attach::KprobeMulti, entry, libc::EINVAL);
        assert!(words.contains("can't be"), "{words}");
    }
}
