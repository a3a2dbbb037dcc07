//! A tracepoint's number, from a tracefs that is opened and mounted nowhere.

use std::fs;

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
pub(super) fn number(attach: Attach, driver: Driver) -> Result<u64> {
    let Some(folder) = folder(driver) else {
        return Err(Error::Stranger { attach, driver });
    };
    let tracefs = Opened::new("tracefs")?;
    let text = fs::read_to_string(tracefs.path(folder).join("id"));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| Error::Unattachable {
            attach,
            words: format!("this kernel's tracefs has no tracepoint {folder}"),
        })
}
