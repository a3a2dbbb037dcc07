//! Several programs at one place.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compile.rs"]
mod compile;
mod cycles;
mod object;
mod order;
