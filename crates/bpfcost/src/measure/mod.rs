//! The measure engine: runs the cases of an experiment in epochs and rounds, and stops.
//!
//! It knows nothing of BPF: it sees [`Experiment`](crate::experiment::Experiment),
//! [`Loaded`](crate::experiment::Loaded) and [`Trial`](crate::experiment::Trial) alone, and tells
//! what happens as [`Event`]s. A journal is those events written down, so [`Measured`] can be
//! rebuilt from one, to resume or to report.

mod event;
mod measured;
mod plan;

pub use event::{Event, Stop};
pub use measured::{Calibration, CaseData, Measured, Warning};
pub use plan::Plan;
