//! Reports: show a record. Nothing here measures or computes a result: every result is in the
//! [`Record`](bpfcost_record::Record), and can be shown again from it on another machine.
//!
//! [`cost`], [`rows`], [`case_table`] and [`captions`] turn a record into text once, so that the terminal, Markdown and
//! HTML can't disagree; the renderers only lay it out.

#![forbid(unsafe_code)]

mod absent;
pub mod benchmark;
mod budget;
pub mod captions;
pub mod case_table;
pub mod compare;
pub mod cost;
pub mod csv;
pub mod estimate;
pub mod figure;
mod histogram;
pub mod html;
pub mod json;
pub mod markdown;
pub mod matrix;
mod misses;
mod notes;
pub mod rate;
pub mod rows;
pub mod scaling;
pub mod section;
mod single_case;
pub mod style;
pub mod summary;
pub mod table;
pub mod target;
pub mod terminal;
pub mod trials;
mod verdict;
pub mod view;
mod warnings;
pub mod workload;
