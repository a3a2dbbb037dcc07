//! Parsers of the files that processes execute, and of objects, as functions of bytes, for fuzzing.

use crate::{
    object::{with_global_programs, with_known_pins},
    process,
};

pub use crate::process::fuzz::usdt;

/// A file that processes execute, and an object of BPF programs.
pub fn elf(bytes: &[u8]) {
    process::fuzz::elf(bytes);
    with_known_pins(with_global_programs(bytes.to_vec()));
}
