//! Reports of fixed records: what they say word for word, in each format and in a real browser.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../bpf/tests/require/mod.rs"]
mod require;

mod before;
mod benchmark;
mod exact;
mod gates;
mod grid;
mod html;
mod matrix;
mod odd;
mod parts;
mod picture;
mod record;
mod scaling;
mod workload;
mod workload_runs;
