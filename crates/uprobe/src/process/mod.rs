//! The probed process: stopped for a moment, given memory, patched, and restored.

mod area;
mod attachment;
mod error;
mod image;
mod layout;
mod maps;
mod memory;
mod reaper;
mod remote;
mod runtime;
mod site;
mod stopped;
mod trampoline;

pub use attachment::{Attachment, Hits, Prepared, Probe};
pub use error::{Error, Result};
pub use image::{Function, Image};
pub use maps::{Mapping, mappings};
pub use memory::Memory;
pub use remote::Remote;
pub use runtime::{Counts, Program, Runtime};
pub use site::{Returns, Site, When};
pub use stopped::{Registers, Stopped};
