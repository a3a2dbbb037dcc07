//! The probed process: stopped for a moment, given memory, patched, and restored.

mod error;
mod image;
mod maps;
mod memory;
mod remote;
mod stopped;

pub use error::{Error, Result};
pub use image::{Function, Image};
pub use maps::{Mapping, mappings};
pub use memory::Memory;
pub use remote::Remote;
pub use stopped::{Registers, Stopped};
