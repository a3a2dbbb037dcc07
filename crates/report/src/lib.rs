//! Reports: show a record. Nothing here measures or computes a result: every result is in the
//! [`Record`](bpfcost_record::Record), and can be shown again from it on another machine.
//!
//! [`rows`] and [`words`] turn a record into text once, so that the terminal, Markdown and HTML can't disagree; the
//! files beside them only lay it out.

#![forbid(unsafe_code)]

mod absent;
pub mod benchmark;
mod budget;
pub mod compare;
pub mod cost;
pub mod csv;
pub mod figure;
pub mod histogram;
pub mod html;
pub mod json;
pub mod markdown;
pub mod matrix;
mod missed;
pub mod rate;
pub mod rows;
pub mod scaling;
mod scenario;
pub mod section;
pub mod style;
pub mod summary;
pub mod table;
pub mod target;
pub mod terminal;
pub mod trials;
pub mod view;
mod warnings;
pub mod words;
pub mod workload;
