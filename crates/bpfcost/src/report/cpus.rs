//! What each CPU did where several ran a case at once: the record's per-CPU values, as rows.

use bpfcost_stats::sample::median;

use crate::{
    record::{CaseRecord, Record, Status},
    report::{number, text},
};

/// Behind the number of a CPU in the name of a secondary value.
const PER_CPU: &str = "_ns_per_op";
/// The secondary value with the sum over CPUs.
const TOTAL: &str = "ops_per_s";
/// The secondary value with the part of the time in which all CPUs ran.
const OVERLAP: &str = "overlap";

/// One case: what an operation cost on each CPU, and how many a second all did.
#[derive(Debug)]
pub struct CpuRow {
    /// The case's name.
    pub name: String,
    /// Per CPU, in the order of the run's list: the median over trials in the record's unit.
    pub costs: Vec<Option<f64>>,
    /// Operations per second of all CPUs together, the median over trials.
    pub ops_per_s: Option<f64>,
    /// The part of the time in which all CPUs ran, the median over trials.
    pub overlap: Option<f64>,
}

impl CpuRow {
    /// The cells of a table, behind the name: each with the number that it shows.
    pub fn cells(&self) -> Vec<(String, Option<f64>)> {
        let plain = |value: f64| number::fixed(value, number::plain_decimals(value));
        let cell = |value: Option<f64>, show: &dyn Fn(f64) -> String| {
            (value.map_or_else(String::new, show), value)
        };
        let costs = self.costs.iter().map(|&cost| cell(cost, &plain));
        let total = cell(self.ops_per_s, &|ops| format!("{} M/s", plain(ops / 1e6)));
        let overlap = cell(self.overlap, &number::round_percent);
        costs.chain([total, overlap]).collect()
    }
}

/// The columns of a table, behind the case's name; empty where the run had one CPU.
pub fn columns(record: &Record) -> Vec<String> {
    let cpus = &record.asked.cpus;
    if cpus.len() < 2 {
        return Vec::new();
    }
    let each = cpus.iter().map(|cpu| format!("CPU {cpu}"));
    each.chain(["together".to_owned(), "overlap".to_owned()])
        .collect()
}

/// Every valid case of a run on several CPUs.
pub fn rows(record: &Record) -> Vec<CpuRow> {
    if record.asked.cpus.len() < 2 {
        return Vec::new();
    }
    let cases = record.cases.iter().filter(|case| case.status == Status::Ok);
    cases
        .filter(|case| case.secondary.contains_key(TOTAL))
        .map(|case| CpuRow {
            name: text::line(&case.name),
            costs: record
                .asked
                .cpus
                .iter()
                .map(|cpu| middle(case, &format!("cpu{cpu}{PER_CPU}")))
                .collect(),
            ops_per_s: middle(case, TOTAL),
            overlap: middle(case, OVERLAP),
        })
        .collect()
}

/// What the columns mean.
pub const CAPTION: &str = "All CPUs start together and run the same case at once; medians over \
                           trials. together: the rates of all CPUs added up; overlap: the part of \
                           the time in which all of them ran.";

fn middle(case: &CaseRecord, name: &str) -> Option<f64> {
    median(&case.secondary.get(name)?.concat())
}
