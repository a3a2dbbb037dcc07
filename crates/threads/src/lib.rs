//! Threads that start together, each pinned to its CPU, and what they are timed at: [pools of objects](PoolKind),
//! [cache lines](mod@line), [system calls](mod@call). All loops that bpfcost times in its own process are here or in
//! `crates/bpf`, which are compiled for speed.
#![forbid(unsafe_code)]

pub mod call;
mod counts;
mod group;
mod kind;
pub mod line;
mod objects;
mod spin;

pub use counts::{PAIRS_PER_S, PoolContents, ThreadCount, TrialCounts};
pub use group::{Member, ThreadGroup, WAIT_TIMEOUT, Wait, may_pin};
pub use kind::PoolKind;
pub use line::{CacheLine, CpuLocation};
pub use objects::{Floor, TimedObjects, UsePattern};
pub use spin::Spin;

/// Hash of the sources of the pools and of what times them, and of their compiler, so that records distinguish builds.
pub const BUILD: &str = env!("BPFCOST_POOL_BUILD");
