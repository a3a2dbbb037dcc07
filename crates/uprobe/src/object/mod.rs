//! Compiled BPF objects: judged and made by the kernel, never attached.
//!
//! ```no_run
//! # fn main() -> Result<(), bpfcost_uprobe::object::Error> {
//! use bpfcost_uprobe::object::LoadedObject;
//!
//! let object = LoadedObject::open("probe.bpf.o".as_ref())?;
//! for program in object.programs() {
//!     println!("{}: {} instructions", program.section, program.instructions.len());
//! }
//! # Ok(())
//! # }
//! ```

mod arena;
mod constants;
mod elf;
mod error;
mod loading;
mod map;
pub(crate) mod messages;
mod pinning;
mod printk;
mod program_array;
mod verifier_log;

pub use arena::Arena;
pub use elf::{Defect, ReachedCode, is_big_endian, reached_code, with_global_programs};
pub use error::{Error, Result};
pub use loading::{
    Choice, LoadedObject, LoadedProgram, StructSlot, forget_pins, keep_private, load_object,
    open_object, programs_in_slots, struct_slots,
};
pub use map::{LoadedMap, Pages};
pub use pinning::with_known_pins;
pub use printk::{PrintkOff, load_quietly};
pub use verifier_log::shorten as shorten_log;
