//! An fprobe on every function that can be traced, but for a few that must not or had better not be.

use std::{
    ffi::CString,
    fs,
    sync::{Arc, Mutex, PoisonError},
};

use libbpf_rs::{Link, ProgramMut, query::LinkTypeInfo};

use super::link::{self, FprobeTargets};
use crate::{
    attach::Attach,
    error::{Result, failed, unattachable},
    mount,
};

/// Functions that run where the kernel does not watch for RCU, or that change themselves: the kernel's own
/// benchmark of kprobe.multi leaves them out too (selftests/bpf/prog_tests/kprobe_multi_test.c).
const LEFT_OUT: [&str; 5] = [
    "arch_cpu_idle",
    "default_idle",
    "rcu_",
    "bpf_dispatcher_xdp_func",
    "__ftrace_invalid_address__",
];

/// The functions by which the kernel patches its own code (x86, Linux 6.12 and 7.2): they would be traced
/// some fifty times for each function that is still to be patched, which makes attaching and detaching take
/// an emulated guest 20 s instead of a few. No event that is measured here calls one of them.
const PATCHING: [&str; 12] = [
    "__get_locked_pte",
    "__pte_offset_map",
    "__text_poke",
    "flush_tlb_mm_range",
    "inat_",
    "insn_",
    "perf_event_text_poke",
    "smp_text_poke",
    "switch_ldt",
    "switch_mm_irqs_off",
    "text_poke",
    "walk_to_pmd",
];

/// The functions, and which of them is the one that counts.
pub(super) struct AllFunctions {
    places: Arc<TraceableFunctions>,
    pub(super) target: u64,
}

enum TraceableFunctions {
    Names(Vec<CString>),
    /// Quicker: the kernel needs to look up nothing (Linux 6.5).
    Addresses(Vec<u64>),
}

impl TraceableFunctions {
    /// Lists them, once for each set of modules: the kernel counts from the first function for each page of that list, which
    /// takes an emulated guest seconds.
    fn list(attach: Attach) -> Result<Arc<Self>> {
        type Listed = (String, Arc<TraceableFunctions>);
        static LISTED: Mutex<Option<Listed>> = Mutex::new(None);
        let mut listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
        // A kernel without modules has no such file.
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let is_same = |(names, places): Listed| (names == names_of(&modules)).then_some(places);
        if let Some(places) = listed.clone().and_then(is_same) {
            return Ok(places);
        }
        let places = Arc::new(Self::read(attach)?);
        *listed = Some((names_of(&modules), Arc::clone(&places)));
        Ok(places)
    }

    fn read(attach: Attach) -> Result<Self> {
        let tracefs = mount::open("tracefs")?;
        if let Ok(list) = fs::read_to_string(tracefs.path("available_filter_functions_addrs")) {
            return Ok(TraceableFunctions::Addresses(addresses(&list)));
        }
        let list = fs::read_to_string(tracefs.path("available_filter_functions"));
        let list = list.map_err(failed(
            attach.name(),
            "listing the functions that can be traced, in tracefs",
        ))?;
        Ok(TraceableFunctions::Names(names(&list)))
    }
}

/// The names and addresses in `/proc/modules`; without its counts of users, which change.
pub(super) fn names_of(modules: &str) -> String {
    let parts = modules.lines().map(|line| {
        let mut words = line.split_whitespace();
        [words.next(), words.nth(4)].map(Option::unwrap_or_default)
    });
    parts.map(|parts| parts.join(" ") + "\n").collect()
}

impl AllFunctions {
    /// Lists them. The program lends itself to learn where `function` is.
    pub(super) fn find(attach: Attach, program: &ProgramMut<'_>, function: &str) -> Result<Self> {
        Ok(AllFunctions {
            places: TraceableFunctions::list(attach)?,
            target: address(attach, program, function)?,
        })
    }

    pub(super) fn attach(&self, program: &ProgramMut<'_>) -> libbpf_rs::Result<Link> {
        let places = match &*self.places {
            TraceableFunctions::Names(names) => FprobeTargets::Names(names),
            TraceableFunctions::Addresses(addresses) => FprobeTargets::Addresses(addresses),
        };
        link::fprobe(program, &places)
    }
}

/// The address of a function: from a link to it alone (Linux 6.6), else from the list of all symbols,
/// which takes an emulated guest seconds to read.
fn address(attach: Attach, program: &ProgramMut<'_>, function: &str) -> Result<u64> {
    let name = CString::new(function).unwrap_or_default();
    let info = link::fprobe(program, &FprobeTargets::Names(&[name]))
        .and_then(|link| link.info())
        .map_err(|source| super::function::explain(attach, function, source))?;
    let address = match info.info {
        LinkTypeInfo::KprobeMulti(multi) => multi.addrs.first().copied(),
        _ => None,
    };
    address
        .filter(|&address| address != 0)
        .or_else(|| listed(function))
        .ok_or_else(|| {
            let why = "the kernel hides its addresses; show them with sysctl \
                       kernel.kptr_restrict=1";
            unattachable(
                attach.name(),
                format!("the address of {function} is unknown: {why}"),
            )
        })
}

fn listed(function: &str) -> Option<u64> {
    let symbols = fs::read_to_string("/proc/kallsyms").ok()?;
    let line = symbols
        .lines()
        .find(|line| line.split_whitespace().nth(2) == Some(function))?;
    let address = u64::from_str_radix(line.split_whitespace().next()?, 16).ok()?;
    (address != 0).then_some(address)
}

/// Lines such as `ffffffff81000000 name [module]`.
fn addresses(list: &str) -> Vec<u64> {
    let mut addresses: Vec<u64> = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, name)| !left_out(name))
        .filter_map(|(address, _)| u64::from_str_radix(address, 16).ok())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Lines such as `name [module]`.
fn names(list: &str) -> Vec<CString> {
    let mut names: Vec<&str> = list
        .lines()
        .filter(|name| !left_out(name))
        .filter_map(|line| line.split(' ').next())
        .collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().flat_map(CString::new).collect()
}

/// Returns true if a function must not be traced, or had better not be.
pub(in crate::attach) fn left_out(name: &str) -> bool {
    let mut starts = LEFT_OUT.iter().chain(&PATCHING);
    starts.any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tracefs_are_read() {
        let list = "ffffffff81000010 second\nffffffff81000000 first [veth]\n\
                    ffffffff81000010 again\nffffffff81000020 rcu_idle_enter\n";
        assert_eq!(
            addresses(list),
            [0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010]
        );
        let list = "second\nfirst [veth]\nsecond\n__ftrace_invalid_address___12\n";
        assert_eq!(names(list), [c"first".to_owned(), c"second".to_owned()]);
    }
}
