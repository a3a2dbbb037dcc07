//! The measure engine: runs the cases of an experiment in epochs and rounds, and stops.
//!
//! The engine knows no BPF: it uses only [`Experiment`](bpfcost_model::Experiment),
//! [`LoadedEpoch`](bpfcost_model::LoadedEpoch) and [`Trial`](bpfcost_model::Trial), and reports what happens as
//! [`Event`]s. A journal is those events written down, so [`Measurements`] can be rebuilt from one, to resume or to
//! report.

#![forbid(unsafe_code)]

mod calibrate;
mod clock;
mod count;
mod engine;
mod epoch;
mod epoch_time;
mod error;
mod event;
mod forecast;
mod measurements;
mod plan;
mod run;
mod schedule;
mod stopping;
mod time_option;
mod undisturbed;

pub use calibrate::PROPORTIONALITY;
pub use clock::{Clock, Monotonic};
pub use count::COUNTING_GOAL_NS;
pub use engine::{LoadSentinel, measure};
pub use epoch_time::EpochTime;
pub use error::Error;
pub use event::{Event, Stop};
pub use forecast::{Expectation, FIRST_EPOCHS, Forecast, expect, forecast};
pub use measurements::{Calibration, CaseData, Measurements, OPS, Summed, Warning};
pub use plan::Plan;
pub use stopping::rounds;
pub use stopping::{LONGEST_S, PRECISION};
pub use time_option::time_option;
pub use undisturbed::Centre;
