//! Events of an object in processes.

use bpfcost_uprobe::probes::TraceLine;

use crate::error::Error;

/// An event of an object in processes.
#[derive(Debug)]
pub enum ObjectEvent<'a> {
    /// The programs are in this process now, or more of them.
    Attached(i32),
    /// They are not, though they should be. It goes on without them.
    Failed(i32, &'a Error),
    /// This process ended, or executes another program.
    Ended(i32),
    /// A record of a ring buffer.
    Record {
        /// The map.
        map: &'a str,
        /// The process that was attached to: itself, or a child of it, wrote the record.
        pid: i32,
        /// The record.
        bytes: &'a [u8],
    },
    /// A line of text (`bpf_printk`).
    Line(&'a TraceLine<'a>),
}

/// A function that takes events.
pub type Report<'a> = dyn FnMut(ObjectEvent<'_>) + 'a;
