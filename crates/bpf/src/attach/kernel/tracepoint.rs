//! A tracepoint's number, from a tracefs that is opened and mounted nowhere.

use std::{fs, os::fd::OwnedFd};

use super::link;
use crate::{
    attach::Attach,
    error::{Error, Result, failed, unattachable},
    mount,
};

/// A tracepoint's name without its category; any other name unchanged.
pub(in crate::attach) fn name(event: &str) -> &str {
    event.split_once(':').map_or(event, |(_, name)| name)
}

/// The folder of a tracepoint, `category:name`, in tracefs.
pub(super) fn folder(event: &str) -> String {
    format!("events/{}", event.replacen(':', "/", 1))
}

/// The number by which perf knows a tracepoint, `category:name`.
pub(in crate::attach) fn number(attach: Attach, event: &str) -> Result<u64> {
    let unattachable = |words: String| unattachable(attach.name(), words);
    if !event.contains(':') {
        return Err(unattachable(format!(
            "{event} is not a tracepoint: its category is missing, as in sock:sock_recv_length"
        )));
    }
    let folder = folder(event);
    let tracefs = mount::open("tracefs")?;
    let text = fs::read_to_string(tracefs.path(&folder).join("id"));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| unattachable(format!("this kernel's tracefs has no tracepoint {folder}")))
}

/// Opens perf's event of a tracepoint, `category:name`.
pub(in crate::attach) fn open(attach: Attach, event: &str) -> Result<OwnedFd> {
    link::tracepoint_event(number(attach, event)?).map_err(failed(
        format!("{attach} at {event}"),
        "opening the tracepoint's event",
    ))
}

/// Turns the kernel's refusal of a tracepoint into what is known of it.
pub(in crate::attach) fn explain(attach: Attach, event: &str, source: libbpf_rs::Error) -> Error {
    match open(attach, event) {
        Err(unknown @ Error::Unattachable { .. }) => unknown,
        _ => match only_of_perf(event) {
            Some(why) => unattachable(attach.name(), format!("{event}: {why} ({source})")),
            None => failed(format!("{attach} at {event}"), "attaching it")(source),
        },
    }
}

/// Explains why a tracepoint that perf knows can't be attached to in another way; `None` if it can.
pub(in crate::attach) fn only_of_perf(event: &str) -> Option<&'static str> {
    event.starts_with("syscalls:").then_some(
        "it is part of raw_syscalls:sys_enter or sys_exit, which see all system calls; attach to that, or use tracepoint",
    )
}
