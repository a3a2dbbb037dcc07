//! Kernels for guests: kept in the user's cache, named by version, checked before use.
//!
//! One folder per release, laid out as distributions do it:
//! `RELEASE/boot/vmlinuz-RELEASE`, `RELEASE/lib/modules/RELEASE/`, and `RELEASE/kernel.json`, which says
//! where it came from and what it must look like.

mod add;
mod architecture;
mod command;
mod debian;
mod error;
mod frame_pointer;
mod image;
mod keep;
mod manifest;
mod modules;
mod observer;
mod package;
mod place;
mod release;
mod staging;
mod store;

#[cfg(test)]
mod tests;

pub use add::AddOptions;
pub use architecture::Architecture;
pub use bpfcost_guest::Kernel;
pub use debian::KNOWN_SUITES;
pub use error::Error;
pub use manifest::{Manifest, Origin, Package};
pub use observer::{SilentObserver, StepObserver};
pub use store::{Addition, KernelEntry, KernelStatus, Store};
