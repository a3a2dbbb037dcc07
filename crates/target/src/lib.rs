//! Targets: where a run takes place. The properties of a machine, what it lacks, and what disturbs a measurement on
//! it; and the kernels that guests can have.

pub mod checks;
mod cpus;
mod disturbance;
pub mod guest;
mod host;
pub mod kernel;
mod machine;
mod name;
mod warnings;

#[cfg(test)]
mod tests;

pub use checks::{Check, CheckState, OLDEST_KERNEL};
pub use cpus::{CpuError, format_cpus, parse_cpus, usable_cpus};
pub use disturbance::DisturbanceWatch;
pub use host::Host;
pub use machine::is_emulated;
pub use name::Target;
pub use warnings::{
    BUSY, BUSY_SHARE, EMULATED, FREQUENCY_SHARE, MIGRATIONS, MIGRATIONS_PER_S, MIN_MIGRATIONS,
    STEAL_SHARE, warnings,
};

/// A name that is no target's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no target {0}\n  Targets are: host, vm:KERNEL (a guest, e.g. vm:6.1), exact:KERNEL (a guest that counts instructions)"
)]
pub struct TargetError(String);
