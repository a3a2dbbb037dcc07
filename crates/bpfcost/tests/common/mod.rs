//! Helpers that several tests share.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses a part of it"
)]

pub mod browser;
pub mod sample_changes;
pub mod sample_exact;
pub mod sample_grid;
pub mod sample_parts;
pub mod sample_record;
pub mod sample_scaling;
pub mod sample_workload;
pub mod synthetic;
pub mod views;
