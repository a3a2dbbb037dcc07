//! The record: everything that a run measured, and the only input of reports and comparisons.
//!
//! During a run, its [`Journal`] stores every event. At the end [`Record::build`] makes the record, [`write()`]
//! writes it to disk whole, and [`load`] and [`compare()`] read it again.

#![forbid(unsafe_code)]

mod budget;
mod build;
mod cells;
mod changes;
mod compare;
mod compat;
mod cost;
mod cross_target;
mod disturbance;
mod exact;
mod file;
mod headline;
mod history;
mod journal;
mod journal_error;
mod judgement;
mod net;
mod noise;
mod off;
mod overhead_difference;
mod raw;
mod reading;
mod record_group;
mod recorded_count;
mod run_data;
mod safeguards;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod scaling;
mod schema;
mod session_spread;
mod states;
#[cfg(test)]
mod tests;
mod time;
mod totals;
mod undisturbed_case;

pub use budget::BudgetAnswer;
pub use cells::Cells;
pub use changes::{Change, ChangeBasis, ChangeOutcome, Changes, Gate, OneSided, Side};
pub use compare::{GateOptions, compare};
pub use compat::{CompareError, comparable};
pub use cost::{Cost, CostEstimate};
pub use cross_target::{
    CrossTarget, CrossTargetCell, CrossTargetColumn, CrossTargetRow, Difference, Reference,
    by_experiment,
};
pub use disturbance::Disturbance;
pub use file::{FileError, load, writable, write};
pub use file::{parse as parse_records, replace};
pub use history::{CaseLevels, SessionHistory};
pub use journal::parse as parse_journal;
pub use journal::{Contents, Header, Journal, JournalNote, journal_path, read_journal};
pub use journal_error::JournalError;
pub use net::RESET_TWICE;
pub use reading::Reading;
pub use recorded_count::{rare_work, recorded_rounding};
pub use scaling::{Curve, CurveGroup, CurvePoint, Curves, KNEE, MISSED_SHARE};
pub use schema::*;
pub use session_spread::case_levels;
pub use states::{ProbedCase, State, States};
pub use time::{now, rfc3339};
