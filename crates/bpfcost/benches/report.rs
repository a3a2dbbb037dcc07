//! Time that reports take: `cargo bench -p bpfcost --bench report`.
//!
//! 29 cases of `xdp-lb` with 100,000 samples in all, and 12 of a workload with as many windows, each of which has 16
//! further values; the HTML must come in under 1 s and 5 MB.

#[path = "../tests/common/mod.rs"]
mod common;

use std::{hint::black_box, time::Instant};

use bpfcost_record::Record;
use bpfcost_report::{json, rate::EventLoad, style::Style};
use common::{sample_record, sample_workload, views};

/// Repeats, of which the median counts.
const TIMES: usize = 7;

fn main() {
    views(sample_record::sized(1_150, 3));
    views(sample_workload::sizes_in(2_800));
}

/// Times each view of a record.
fn views(record: Record) {
    let samples: usize = record
        .cases
        .iter()
        .flat_map(|case| &case.samples)
        .map(Vec::len)
        .sum();
    println!(
        "{}: {} cases, {samples} samples; median of {TIMES}",
        record.experiment,
        record.cases.len()
    );
    let records = [record];
    let serde = time("serde_json::to_string", None, || {
        serde_json::to_string(&records[0])
            .expect("a record is JSON")
            .len()
    });
    let style = Style::default();
    let against = Some(serde);
    time("json", against, || {
        json::render(&records).expect("json").len()
    });
    time("table", against, || views::table(&records[0], style).len());
    time("verbose", against, || {
        views::verbose(&records[0], style).len()
    });
    time("markdown", against, || views::markdown(&records[0]).len());
    time("csv", against, || {
        bpfcost_pages::csv(&records, EventLoad::default())
            .expect("csv")
            .len()
    });
    time("html", against, || {
        views::html(&records).expect("html").len()
    });
}

/// Prints the median time of `work`, what it made, and how that compares; in milliseconds.
fn time(name: &str, against: Option<f64>, work: impl Fn() -> usize) -> f64 {
    let mut bytes = 0;
    let mut times: Vec<f64> = (0..TIMES)
        .map(|_| {
            let start = Instant::now();
            bytes = black_box(work());
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let median_ms = times[TIMES / 2];
    let ratio = against.map_or(String::new(), |base| {
        format!("  {:6.2} × serde_json", median_ms / base)
    });
    println!(
        "{name:22} {median_ms:8.2} ms {:9.1} kB{ratio}",
        bytes as f64 / 1e3
    );
    median_ms
}
