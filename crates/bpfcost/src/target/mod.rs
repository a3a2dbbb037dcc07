//! Targets: where a run takes place. For now the host alone: what it is, what it lacks, and what
//! disturbs a measurement on it.

mod checks;
mod cpus;
mod disturbance;
mod host;
mod machine;
mod warnings;

#[cfg(test)]
mod tests;

pub use checks::{Check, CheckState, OLDEST_KERNEL};
pub use cpus::{CpuError, format_cpus, parse_cpus, usable_cpus};
pub use disturbance::Watch;
pub use host::Host;
pub use warnings::{
    BUSY_SHARE, FREQUENCY_SHARE, MIGRATIONS_LEAST, MIGRATIONS_PER_S, STEAL_SHARE, warnings,
};
