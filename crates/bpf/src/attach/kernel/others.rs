//! Finds other programs attached to a driver's events: to its function, tracepoint or hook.

use std::{fs, io};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, PerfEventType};

use super::{
    state::{self, KprobeState},
    tracepoint,
};
use crate::{
    attach::Driver,
    error::{Result, failed},
    feature,
    mount::{self, MountedFs},
    programs::loaded_programs,
};

/// The kernel's own BTF is registered first; programs that are attached to other programs name those here.
const KERNEL_BTF: u32 = 1;

/// Functions and tracepoint that events pass through.
struct EventPath<'a> {
    functions: &'a [&'a str],
    tracepoint: Option<&'static str>,
    /// Names of the functions in the kernel's BTF.
    types: &'a [&'a str],
}

/// Describes what else is attached where the events of that driver pass; `None` if the kernel shows nothing. Call it while
/// nothing of one's own is attached. Drivers with places of their own (interfaces, files, page faults) always get `None`.
pub fn others(driver: Driver) -> Result<Option<String>> {
    let Some(called) = driver.called() else {
        return Ok(None);
    };
    let mut probes = at(&EventPath {
        functions: called.functions,
        tracepoint: called.tracepoint.map(tracepoint::name),
        types: called.functions,
    })?;
    if let (Some(event), Ok(tracefs)) = (called.tracepoint, mount::open("tracefs")) {
        probes.extend(enabled(&tracefs, event));
    }
    Ok((!probes.is_empty()).then(|| probes.join("; ")))
}

/// Describes all that is attached to one function, the caller's own included. A list that this kernel does not have or does
/// not show counts as empty; any other failure to read one is an error.
pub fn attached_at(function: &str) -> Result<Vec<String>> {
    at(&EventPath {
        functions: &[function],
        tracepoint: None,
        // Trampolines are seen by what ftrace calls.
        types: &[],
    })
}

fn at(places: &EventPath<'_>) -> Result<Vec<String>> {
    let mut probes = linked(places);
    let kprobes = list("debugfs", "kprobes/list")?;
    probes.extend(probed(&kprobes, places.functions));
    let enabled = list("tracefs", "enabled_functions")?;
    probes.extend(traced(&enabled, places.functions));
    Ok(probes)
}

fn list(kind: &'static str, path: &str) -> Result<String> {
    let text = MountedFs::ask(kind)
        .map_err(io::Error::from)
        .and_then(|opened| fs::read_to_string(opened.path(path)));
    where_there(text).map_err(failed(
        format!("{kind}'s {path}"),
        "reading it to see what is attached",
    ))
}

/// The text of a list; empty where this kernel has none or does not show it: then it does not allow attaching there
/// either.
fn where_there(text: io::Result<String>) -> io::Result<String> {
    match text {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENODEV | libc::ENOENT | libc::EPERM)
            ) =>
        {
            Ok(String::new())
        }
        text => text,
    }
}

/// Kprobes that take hits. One that is off costs nothing, such as the event of a process that was killed.
fn probed(list: &str, functions: &[&str]) -> Vec<String> {
    state::all(list)
        .filter(|kprobe| kprobe.state != KprobeState::Off)
        .filter(|kprobe| functions.contains(&kprobe.function.as_str()))
        .map(|kprobe| format!("a kprobe at {}+{:#x}", kprobe.function, kprobe.offset))
        .collect()
}

/// BPF programs, by their links.
fn linked(places: &EventPath<'_>) -> Vec<String> {
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

/// Describes all that ftrace calls at the functions' entries: fprobes, trampolines, tracers.
fn traced(list: &str, functions: &[&str]) -> Vec<String> {
    let names = |line: &&str| {
        let name = line.split_whitespace().next();
        name.is_some_and(|name| functions.contains(&name))
    };
    list.lines()
        .filter(names)
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            format!("ftrace calls something there: {}", words.join(" "))
        })
        .collect()
}

/// Reports a tracepoint that is written to the trace buffer.
fn enabled(tracefs: &MountedFs, event: &str) -> Option<String> {
    let folder = tracepoint::folder(event);
    let text = fs::read_to_string(tracefs.path(&folder).join("enable")).ok()?;
    // The kernel switches that of bpf_printk on with the first program that prints, and leaves it on.
    (text.trim() != "0").then(|| {
        format!(
            "tracing is on in tracefs's {folder}/enable; if nobody reads it, switch it off: \
             echo 0 > /sys/kernel/tracing/{folder}/enable"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_attached_is_told_and_who_is_off_is_not() {
        let list = "ffffffff8c1ff6b4  r  __x64_sys_flock+0x4    [DISABLED][FTRACE]\n\
                    ffffffff8c1ff6b4  k  __x64_sys_flock+0x4    [FTRACE]\n\
                    ffffffff8c2ff6b4  k  eventfd_read+0x0\n";
        assert_eq!(
            probed(list, &["__x64_sys_flock"]),
            ["a kprobe at __x64_sys_flock+0x4"]
        );
        assert_eq!(probed(list, &["flock"]), [""; 0]);
        let list = "eventfd_read (1) R I\t\n__x64_sys_flock (2) R   \ttramp: 0xffffffffc0400000\n";
        assert_eq!(
            traced(list, &["__x64_sys_flock"]),
            ["ftrace calls something there: __x64_sys_flock (2) R tramp: 0xffffffffc0400000"]
        );
    }

    #[test]
    fn a_list_that_can_not_be_read_is_not_empty() {
        let failed = |number| where_there(Err(io::Error::from_raw_os_error(number)));
        for none in [libc::ENODEV, libc::ENOENT, libc::EPERM] {
            assert_eq!(failed(none).ok(), Some(String::new()));
        }
        for refused in [libc::EACCES, libc::EIO] {
            let error = failed(refused).expect_err("a list that is there");
            assert_eq!(error.raw_os_error(), Some(refused));
        }
    }
}
