//! The datapath against its specification, packet by packet, apart from any scenario.

mod flows;
mod lab;
mod leaving;
mod parsing;
#[path = "../require/mod.rs"]
mod require;
