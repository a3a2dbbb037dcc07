//! Tests that take the record as a whole.

mod build;
mod compare;
mod contention;
mod counts;
mod gate;
mod keys;
mod safeguards;
mod totals;
mod turns;
mod undisturbed;

use crate::samples::{built, case, events, finished, machine, plan, record, trial, usual};
