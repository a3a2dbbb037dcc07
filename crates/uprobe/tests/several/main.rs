//! Several programs at one place, and the same in the kernel.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod cycles;
mod equal;
mod object;
mod order;
