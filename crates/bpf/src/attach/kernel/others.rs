//! Who else is attached to what a driver's events pass through: its function, tracepoint or hook.

use std::fs;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, PerfEventType};

use super::{state::List, tracepoint};
use crate::{attach::Driver, error::Result, feature, mount::Opened, programs::loaded_programs};

/// The kernel's own BTF is registered first; programs that are attached to other programs name those here.
const KERNEL_BTF: u32 = 1;

/// What events pass through.
struct Places<'a> {
    functions: &'a [&'a str],
    tracepoint: Option<&'static str>,
    /// As they are named in the kernel's BTF.
    types: &'a [&'a str],
}

fn places(driver: Driver) -> Option<Places<'static>> {
    let of = |functions, types| Places {
        functions,
        tracepoint: driver.tracepoint(),
        types,
    };
    Some(match driver {
        Driver::Helper => of(&["bpf_get_numa_node_id"], &["bpf_get_numa_node_id"]),
        Driver::Kfunc => of(
            &["bpf_modify_return_test_tp"],
            &["bpf_modify_return_test_tp"],
        ),
        Driver::Printk => of(&["bpf_trace_printk"], &["bpf_trace_printk"]),
        Driver::SysBpf => of(
            &["security_bpf", "bpf_lsm_bpf"],
            &["security_bpf", "bpf_lsm_bpf"],
        ),
        _ => return None,
    })
}

/// Who else is attached to what the events of that driver pass through, in words; `None` where nobody is, as
/// far as the kernel tells. To be asked while nothing of one's own is attached. Drivers with places of
/// their own (interfaces, files, page faults) are always alone here.
pub fn others(driver: Driver) -> Result<Option<String>> {
    let Some(places) = places(driver) else {
        return Ok(None);
    };
    let mut found = at(&places);
    if let Ok(tracefs) = Opened::new("tracefs") {
        found.extend(enabled(&tracefs, driver));
    }
    Ok((!found.is_empty()).then(|| found.join("; ")))
}

/// The same for one function.
pub fn others_at(function: &str) -> Option<String> {
    let found = at(&Places {
        functions: &[function],
        tracepoint: None,
        // Trampolines are seen by what ftrace calls.
        types: &[],
    });
    (!found.is_empty()).then(|| found.join("; "))
}

fn at(places: &Places<'_>) -> Vec<String> {
    let mut found = linked(places);
    let kprobes = List::open().and_then(|list| list.read());
    for kprobe in kprobes.unwrap_or_default() {
        if places.functions.contains(&kprobe.function.as_str()) {
            found.push(format!(
                "a kprobe at {}+{:#x}",
                kprobe.function, kprobe.offset
            ));
        }
    }
    if let Ok(tracefs) = Opened::new("tracefs") {
        found.extend(traced(&tracefs, places));
    }
    found
}

/// BPF programs, by their links.
fn linked(places: &Places<'_>) -> Vec<String> {
    let numbers: Vec<u32> = places
        .types
        .iter()
        .filter_map(|name| feature::btf_number(name))
        .collect();
    let names = |name: Option<&std::ffi::OsString>, all: &[&str]| {
        name.and_then(|name| name.to_str())
            .is_some_and(|name| all.contains(&name))
    };
    let how = |info: &LinkTypeInfo| match info {
        LinkTypeInfo::Tracing(tracing)
            if tracing.target_obj_id == KERNEL_BTF && numbers.contains(&tracing.target_btf_id) =>
        {
            Some("a trampoline")
        }
        LinkTypeInfo::RawTracepoint(raw) if Some(raw.name.as_str()) == places.tracepoint => {
            Some("a raw tracepoint")
        }
        LinkTypeInfo::PerfEvent(event) => match &event.event_type {
            PerfEventType::Tracepoint { name, .. }
                if places
                    .tracepoint
                    .is_some_and(|tracepoint| names(name.as_ref(), &[tracepoint])) =>
            {
                Some("a tracepoint")
            }
            PerfEventType::Kprobe { func_name, .. }
                if names(func_name.as_ref(), places.functions) =>
            {
                Some("a kprobe")
            }
            _ => None,
        },
        _ => None,
    };
    let links: Vec<_> = LinkInfoIter::default()
        .filter_map(|link| Some((how(&link.info)?, link.prog_id)))
        .collect();
    if links.is_empty() {
        return Vec::new();
    }
    let programs = loaded_programs();
    links
        .into_iter()
        .map(|(how, number)| {
            let name = programs.iter().find(|program| program.id == number);
            let name = name.map_or("?", |program| program.name.as_str());
            format!("BPF program {name} (number {number}) by {how}")
        })
        .collect()
}

/// What ftrace calls at a function's entry: fprobes, trampolines, tracers.
fn traced(tracefs: &Opened, places: &Places<'_>) -> Vec<String> {
    let text = fs::read_to_string(tracefs.path("enabled_functions")).unwrap_or_default();
    let names = |line: &&str| {
        let name = line.split_whitespace().next();
        name.is_some_and(|name| places.functions.contains(&name))
    };
    text.lines()
        .filter(names)
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            format!("ftrace calls something there: {}", words.join(" "))
        })
        .collect()
}

/// Whether somebody has the tracepoint written into the trace buffer.
fn enabled(tracefs: &Opened, driver: Driver) -> Option<String> {
    let folder = tracepoint::folder(driver)?;
    let text = fs::read_to_string(tracefs.path(folder).join("enable")).ok()?;
    (text.trim() != "0").then(|| format!("tracing is on in tracefs's {folder}/enable"))
}
