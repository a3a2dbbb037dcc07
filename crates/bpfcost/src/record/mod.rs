//! The record: everything that a run saw, and the only thing that reports and comparisons read.

mod schema;

pub use schema::*;
