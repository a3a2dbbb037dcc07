//! Costs in formats of other benchmark tools: text of Go benchmarks, which `benchstat` reads, and the JSON of Bencher and of
//! github-action-benchmark. Each has the cases that were measured, without floors and without those that are invalid.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::Result;
use serde::Serialize;

use bpfcost_model::{Role, Unit};
use bpfcost_record::{CaseRecord, Raw, Record, Status};
use bpfcost_text::line;

/// A line for each epoch of each case, `BenchmarkXdp-lb/tcp-v4-lru-hit-1 250000 101.2 ns/op`, in the unit of the record.
/// A record begins with lines that say where it was measured.
///
/// `benchstat` computes its own interval of the median of these lines. Values are those that lead in the record.
pub fn go(records: &[Record]) -> String {
    let mut out = String::new();
    for record in records {
        for (key, value) in [
            ("pkg", format!("bpfcost/{}", record.experiment)),
            ("cpu", record.machine.cpu.clone()),
            ("kernel", record.machine.kernel.clone()),
            ("target", record.target.clone()),
        ] {
            let _ = writeln!(out, "{key}: {}", line(&value));
        }
        // A name that begins with a small letter is no benchmark's, and one that ends in a number has CPUs.
        let experiment = capitalized(&word(&record.experiment));
        for (case, raw) in valid_cases(record) {
            let epochs = case.epoch_values(case.reading()).unwrap_or_default();
            // A count on which trials agree is one value, whatever a load took.
            let repeats = raw.repeats.is_some_and(|trials| trials > 0);
            let exact = repeats.then(|| vec![raw.value; epochs.len()]);
            let runs = case.calibration.map_or(1, |found| found.batch.0.max(1));
            for value in exact.unwrap_or(epochs) {
                if value.is_finite() {
                    let name = word(&case.name);
                    let unit = record.unit;
                    let _ = writeln!(out, "Benchmark{experiment}/{name}-1 {runs} {value} {unit}");
                }
            }
        }
    }
    out
}

/// JSON of Bencher: for each benchmark and measure the nanoseconds or instructions per operation, with the ends of the 95 %
/// interval; of counts, with the smallest and the largest of a load.
pub fn bencher(records: &[Record]) -> Result<String> {
    #[derive(Serialize)]
    struct Metric {
        value: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        lower_value: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        upper_value: Option<f64>,
    }
    let mut benchmarks: BTreeMap<String, BTreeMap<&str, Metric>> = BTreeMap::new();
    for record in records {
        let measure = match record.unit {
            Unit::NanosPerOp => "ns-per-op",
            Unit::InstructionsPerOp => "insn-per-op",
        };
        for (case, raw) in valid_cases(record) {
            let [lower_value, upper_value] = ends(raw);
            let metric = Metric {
                value: raw.value,
                lower_value,
                upper_value,
            };
            let of_case = benchmarks.entry(name(record, case)).or_default();
            of_case.insert(measure, metric);
        }
    }
    Ok(serde_json::to_string_pretty(&benchmarks)? + "\n")
}

/// The tool `customSmallerIsBetter` of github-action-benchmark: a list of values with their units and half-widths.
pub fn github(records: &[Record]) -> Result<String> {
    #[derive(Serialize)]
    struct Entry {
        name: String,
        unit: String,
        value: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        range: Option<String>,
        extra: String,
    }
    let mut entries = Vec::new();
    for record in records {
        for (case, raw) in valid_cases(record) {
            let half_width = raw.ci95.map(|[low, high]| (high - low) / 2.0);
            entries.push(Entry {
                name: name(record, case),
                unit: record.unit.to_string(),
                value: raw.value,
                range: half_width.map(|half_width| format!("± {half_width:.3}")),
                extra: line(&case.about),
            });
        }
    }
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}

fn valid_cases(record: &Record) -> impl Iterator<Item = (&CaseRecord, &Raw)> {
    let cases = record.cases.iter();
    let cases = cases.filter(|case| case.role == Role::Case && case.status == Status::Ok);
    cases.filter_map(|case| Some((case, case.raw.as_ref()?)))
}

fn ends(raw: &Raw) -> [Option<f64>; 2] {
    let [low, high] = raw
        .ci95
        .or(raw.loads)
        .map_or([None; 2], |ends| ends.map(Some));
    [low, high]
}

/// Name of a case, unique among all experiments and targets.
fn name(record: &Record, case: &CaseRecord) -> String {
    line(&format!(
        "{}/{} on {}",
        record.experiment, case.name, record.target
    ))
}

/// Without spaces, which separate fields.
fn word(name: &str) -> String {
    line(name).split_whitespace().collect::<Vec<_>>().join("_")
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}
