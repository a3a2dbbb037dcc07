//! The tracepoint of `bpf_trace_printk`: the kernel switches it on, for the trace buffer, when a program
//! that calls it is loaded, and leaves it so.

use std::fs;

use super::tracepoint;
use crate::{attach::Driver, mount::Opened};

/// Remembers that the tracepoint was off, and switches it off again when dropped. Where somebody has it on,
/// it stays on.
pub(super) struct Quiet(Option<Opened>);

impl Quiet {
    pub(super) fn note() -> Self {
        let tracefs = Opened::new("tracefs").ok();
        Quiet(tracefs.filter(|tracefs| read(tracefs).is_some_and(|text| text.trim() == "0")))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some((tracefs, folder)) = self.0.as_ref().zip(tracepoint::folder(Driver::Printk)) {
            // Where it can't be, others() tells of it.
            let _ = fs::write(tracefs.path(folder).join("enable"), "0");
        }
    }
}

fn read(tracefs: &Opened) -> Option<String> {
    let folder = tracepoint::folder(Driver::Printk)?;
    fs::read_to_string(tracefs.path(folder).join("enable")).ok()
}
