//! Workloads: servers and load generators, described as data. They end with the run in every case.
//!
//! A [`Definition`] comes from `experiments/*.toml` or from the command line. [`Server`] and [`LoadClient`] are its
//! processes; [`UsageReader`] measures the CPU time of each. Everything listens only on loopback.

mod access_log;
mod base;
mod busy;
mod definition;
mod error;
pub mod generator;
mod load;
mod network;
pub mod outside;
mod parse;
mod reading;
#[cfg(test)]
#[path = "../../bpf/tests/require/mod.rs"]
mod require;
#[cfg(test)]
mod schema;
mod server;
mod source;
mod usage;

pub use access_log::read as read_access_log;
pub use base::Base;
pub use definition::LONGEST_WINDOW_MS;
pub use definition::allowed;
pub use definition::{
    AccessLog, Client, CountCheck, Definition, Factor, Output, OwnServer, Ready, RunningServer,
    ServerSpec, Variant,
};
pub use error::Error;
pub use load::{LoadClient, LoadResult, RunningClient};
pub use network::{Network, Path};
pub use parse::DefinitionProblem;
pub use reading::text::find;
pub use reading::{LONGEST, Reading};
pub use server::Server;
pub use usage::{Usage, UsageReader, UsageSnapshot, sources};
