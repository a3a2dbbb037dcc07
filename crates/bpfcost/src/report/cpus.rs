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

/// One case: what an operation cost on each CPU, and how many a second all did.
#[derive(Debug)]
pub struct CpuRow {
    /// The case's name.
    pub name: String,
    /// Per CPU of [`names`], in its order: the median over trials in the record's unit.
    pub costs: Vec<Option<f64>>,
    /// Operations per second of all CPUs together, the median over trials.
    pub ops_per_s: Option<f64>,
}

impl CpuRow {
    /// The cells of a table: the name, each CPU's cost, the sum.
    pub fn cells(&self) -> Vec<String> {
        let cost = |cost: &Option<f64>| {
            cost.map_or_else(String::new, |cost| {
                number::fixed(cost, number::plain_decimals(cost))
            })
        };
        let total = self.ops_per_s.map_or_else(String::new, |ops| {
            let millions = ops / 1e6;
            format!(
                "{} M/s",
                number::fixed(millions, number::plain_decimals(millions))
            )
        });
        let name = std::iter::once(self.name.clone());
        name.chain(self.costs.iter().map(cost))
            .chain([total])
            .collect()
    }
}

/// The CPUs of a run on several; empty where it had one.
pub fn names(record: &Record) -> Vec<String> {
    let cpus = &record.asked.cpus;
    if cpus.len() < 2 {
        return Vec::new();
    }
    cpus.iter().map(|cpu| format!("CPU {cpu}")).collect()
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
        })
        .collect()
}

/// What the columns mean.
pub const CAPTION: &str = "All CPUs start together and run the same case at once; medians over trials. \
                           The sum counts from the first start to the last end.";

fn middle(case: &CaseRecord, name: &str) -> Option<f64> {
    median(&case.secondary.get(name)?.concat())
}
