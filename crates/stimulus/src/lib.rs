//! Stimuli: small, fixed amounts of work by this process that lead to events in the kernel, so that a program attached
//! to a hook runs.
//!
//! One operation of a stimulus makes the same system calls each time. It cleans up after itself, waits for nothing
//! that may never come, and uses no network but the loopback interface. Files are made in the caller's folder.
//!
//! ```
//! use bpfcost_stimulus::{Context, find};
//!
//! let context = Context::new(std::env::temp_dir());
//! let mut open = find("open").unwrap().prepare(&context).unwrap();
//! open.operate().unwrap();
//! ```

#![forbid(unsafe_code)]

mod devices;
mod entries;
mod error;
mod events;
mod files;
mod helper;
mod identity;
mod kernel_files;
mod loopback;
mod memory;
mod message_queue;
mod metadata;
mod mounts;
mod namespaces;
mod network;
mod pipes;
mod processes;
mod scheduling;
mod shortage;
mod signals;
mod smallest_program;
mod stimulus;
mod time;
mod unix;

pub use error::{Error, Result};
pub use stimulus::{Context, Prepared, Stimulus};

const MENU: &[&[Stimulus]] = &[
    files::STIMULI,
    entries::STIMULI,
    metadata::STIMULI,
    kernel_files::STIMULI,
    pipes::STIMULI,
    events::STIMULI,
    devices::STIMULI,
    network::STIMULI,
    unix::STIMULI,
    loopback::STIMULI,
    message_queue::STIMULI,
    processes::STIMULI,
    identity::STIMULI,
    scheduling::STIMULI,
    signals::STIMULI,
    time::STIMULI,
    memory::STIMULI,
    mounts::STIMULI,
    namespaces::STIMULI,
    shortage::STIMULI,
];

/// All stimuli, in a fixed order.
pub fn all() -> impl Iterator<Item = &'static Stimulus> {
    MENU.iter().copied().flatten()
}

/// The stimulus with this name.
pub fn find(name: &str) -> Option<&'static Stimulus> {
    all().find(|stimulus| stimulus.name == name)
}
