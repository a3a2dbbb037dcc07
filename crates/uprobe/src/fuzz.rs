//! Parsers of the files that processes execute, as functions of bytes, for fuzzing.

pub use crate::process::fuzz::{elf, usdt};
