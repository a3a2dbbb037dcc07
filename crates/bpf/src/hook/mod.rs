//! A person's own object, unmodified, with its programs attached at their own hooks.
//!
//! [`ObjectFile::hooks`](crate::program::ObjectFile::hooks) lists the programs and the hooks that their sections name.
//! [`companions`] are those that belong together; [`HookedObject`] loads and attaches them. [`HookKind::root`] names the
//! kernel functions by which a hook reaches its programs, for those who find events in a trace.

mod absent;
mod attaching;
mod companions;
mod congestion;
mod kind;
mod map_defaults;
mod object;
pub mod old_calls;
mod perf_event;
mod root;
mod section;
mod struct_ops;

pub use companions::companions;
pub use kind::HookKind;
pub use object::HookedObject;
pub use root::Root;
pub use section::Hook;

use std::sync::Arc;

use crate::{attach, error::Result, unwind::KernelSymbols};

/// Reads the kernel's lists of functions and symbols, which whatever asks for them later then finds read.
pub fn read_lists() {
    attach::read_lists();
}

/// The symbols of the running kernel and its modules.
pub fn symbols() -> Result<Arc<KernelSymbols>> {
    attach::symbols()
}
