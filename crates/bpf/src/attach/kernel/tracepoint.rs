//! A tracepoint's number, from a tracefs that is opened and mounted nowhere.

use std::{fs, os::fd::OwnedFd};

use super::link;
use crate::{
    attach::{Attach, Driver},
    error::{Error, Result},
    mount::Opened,
};

/// Where tracefs has a driver's tracepoint.
pub(super) fn folder(driver: Driver) -> Option<&'static str> {
    match driver {
        Driver::Kfunc => Some("events/bpf_test_run/bpf_trigger_tp"),
        Driver::Printk => Some("events/bpf_trace/bpf_trace_printk"),
        _ => None,
    }
}

/// The number by which perf knows a driver's tracepoint.
pub(super) fn number_of_driver(attach: Attach, driver: Driver) -> Result<u64> {
    match folder(driver) {
        Some(folder) => number(attach, folder),
        None => Err(Error::Stranger { attach, driver }),
    }
}

fn number(attach: Attach, folder: &str) -> Result<u64> {
    let tracefs = Opened::new("tracefs")?;
    let text = fs::read_to_string(tracefs.path(folder).join("id"));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| Error::Unattachable {
            attach,
            words: format!("this kernel's tracefs has no tracepoint {folder}"),
        })
}

/// Opens perf's event of a tracepoint, `category:name`.
pub(in crate::attach) fn open(attach: Attach, event: &str) -> Result<OwnedFd> {
    let folder = match event.split_once(':') {
        Some((category, name)) => format!("events/{category}/{name}"),
        None => {
            return Err(Error::Unattachable {
                attach,
                words: format!(
                    "{event} is no tracepoint: its category is missing, as in sock:sock_recv_length"
                ),
            });
        }
    };
    link::tracepoint_event(number(attach, &folder)?).map_err(|error| Error::Attach {
        what: format!("{attach} at {event}"),
        action: "opening the tracepoint's event",
        source: error.into(),
    })
}
