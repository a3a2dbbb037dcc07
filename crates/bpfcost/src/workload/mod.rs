//! Workloads: servers and load generators, described as data, started and stopped for sure.
//!
//! A [`Definition`] comes from `experiments/*.toml` or from the command line. [`Server`] and [`Load`] are its
//! processes, [`Accounts`] says what CPU time each of them took. Everything listens on loopback alone.

mod accounts;
mod definition;
mod load;
mod process;
mod reading;
mod scene;
mod server;

pub use accounts::{Accounts, Spent, sources};
pub(crate) use definition::allowed;
pub use definition::{
    Check, Client, Definition, Factor, Headline, OFF, Output, Ready, Served, ServerSpec, Variant,
    Watch,
};
pub use load::Load;
pub use process::Process;
pub use reading::Reading;
pub use scene::Scene;
pub use server::Server;
pub(crate) use server::free_port;
