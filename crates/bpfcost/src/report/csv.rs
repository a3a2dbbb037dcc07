//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none.

use anyhow::Result;

use crate::{
    experiment::Role,
    record::{BudgetVerdict, CaseRecord, Record, Status, Verdict},
    report::text,
};

/// The columns of [`render`].
const CASES: [&str; 32] = [
    "experiment",
    "target",
    "kernel",
    "started",
    "unit",
    "case",
    "group",
    "role",
    "status",
    "epochs",
    "trials",
    "value",
    "ci95_low",
    "ci95_high",
    "loads_low",
    "loads_high",
    "repeats",
    "net_low",
    "net_high",
    "net_value",
    "net_ci95_low",
    "net_ci95_high",
    "distinguishable",
    "min",
    "p50",
    "p90",
    "p99",
    "max",
    "stddev",
    "cv",
    "outliers",
    "problem",
];

/// The columns of [`comparisons`].
const COMPARISONS: [&str; 17] = [
    "experiment",
    "target",
    "started",
    "unit",
    "case",
    "baseline",
    "difference",
    "ci95_low",
    "ci95_high",
    "relative",
    "relative_ci95_low",
    "relative_ci95_high",
    "p",
    "verdict",
    "detectable_percent",
    "resolve_s",
    "budget",
];

/// Every case of every record.
pub fn render(records: &[Record]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(CASES)?;
    for record in records {
        for case in &record.cases {
            let head = [
                &record.experiment,
                &record.target,
                &record.machine.kernel,
                &record.started,
            ]
            .map(|text| text::line(text));
            let cells = head
                .into_iter()
                .chain([record.unit.to_string()])
                .chain(case_cells(case));
            writer.write_record(cells)?;
        }
    }
    finish(writer)
}

/// Every comparison of every record.
pub fn comparisons(records: &[Record]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COMPARISONS)?;
    for record in records {
        for comparison in &record.comparisons {
            let verdict = match comparison.verdict {
                Verdict::Slower => "slower",
                Verdict::Faster => "faster",
                Verdict::Same => "same",
                Verdict::Unresolved => "unresolved",
            };
            let budget = match comparison.budget {
                Some(BudgetVerdict::Within) => "within",
                Some(BudgetVerdict::Over) => "over",
                Some(BudgetVerdict::CantTell) => "can't tell",
                None => "",
            };
            let [low, high] = ends(comparison.ci95);
            let [relative_low, relative_high] = ends(comparison.relative_ci95);
            writer.write_record([
                text::line(&record.experiment),
                text::line(&record.target),
                text::line(&record.started),
                record.unit.to_string(),
                text::line(&comparison.case),
                text::line(&comparison.baseline),
                plain(Some(comparison.difference)),
                low,
                high,
                plain(Some(comparison.relative)),
                relative_low,
                relative_high,
                plain(Some(comparison.p)),
                verdict.to_owned(),
                plain(comparison.detectable),
                plain(comparison.resolve_s),
                budget.to_owned(),
            ])?;
        }
    }
    finish(writer)
}

fn case_cells(case: &CaseRecord) -> Vec<String> {
    let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
    let net = raw.and(case.net.as_ref());
    let role = match case.role {
        Role::Case => "case",
        Role::Floor => "floor",
    };
    let (status, problem) = match case.status {
        Status::Ok => ("ok", String::new()),
        Status::Invalid => {
            let problems: Vec<String> = case.problems.iter().map(ToString::to_string).collect();
            ("invalid", problems.join("; "))
        }
        Status::Unsupported => ("unsupported", case.reason.clone().unwrap_or_default()),
    };
    let whole =
        |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
    let [low, high] = ends(raw.and_then(|raw| raw.ci95));
    let [loads_low, loads_high] = ends(raw.and_then(|raw| raw.loads));
    let [net_low, net_high] = ends(net.map(|net| net.bracket));
    let [net_ci_low, net_ci_high] = ends(net.and_then(|net| net.ci95));
    vec![
        text::line(&case.name),
        text::line(&case.group),
        role.to_owned(),
        status.to_owned(),
        whole(raw.map(|raw| raw.epochs)),
        whole(raw.map(|raw| raw.trials)),
        plain(raw.map(|raw| raw.value)),
        low,
        high,
        loads_low,
        loads_high,
        whole(raw.and_then(|raw| raw.repeats)),
        net_low,
        net_high,
        plain(net.and_then(|net| net.value)),
        net_ci_low,
        net_ci_high,
        net.map_or_else(String::new, |net| net.distinguishable.to_string()),
        plain(raw.map(|raw| raw.min)),
        plain(raw.map(|raw| raw.p50)),
        plain(raw.map(|raw| raw.p90)),
        plain(raw.map(|raw| raw.p99)),
        plain(raw.map(|raw| raw.max)),
        plain(raw.map(|raw| raw.stddev)),
        plain(raw.map(|raw| raw.cv)),
        whole(raw.map(|raw| raw.outliers)),
        text::line(&problem),
    ]
}

/// The shortest text that reads back as the same number.
fn plain(value: Option<f64>) -> String {
    match value.filter(|value| value.is_finite()) {
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

fn ends(interval: Option<[f64; 2]>) -> [String; 2] {
    match interval {
        Some(ends) => ends.map(|end| plain(Some(end))),
        None => [String::new(), String::new()],
    }
}

fn finish(writer: csv::Writer<Vec<u8>>) -> Result<String> {
    Ok(String::from_utf8(writer.into_inner()?)?)
}
