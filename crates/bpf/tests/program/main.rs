//! People's own programs in a loop: they do in each run what they do alone, and faults are seen.

#[path = "../require/mod.rs"]
mod require;

mod faults;
mod files;
mod lab;
mod maps;
mod refusals;
mod runs;
mod traceable;
mod turns;
mod windows;
