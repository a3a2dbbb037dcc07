//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none.

use std::collections::BTreeSet;

use anyhow::Result;
use bpfcost_stats::Additive;

use crate::{
    experiment::Role,
    record::{
        BudgetVerdict, CaseRecord, CurvePoint, Curves, Part, PartRole, Parts, Record, Status,
        Verdict,
    },
    report::{
        rate::{self, Load},
        text,
    },
    workload::VARIANT,
};

/// The columns of [`render`].
const CASES: [&str; 43] = [
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
    "part",
    "part_value",
    "part_ci95_low",
    "part_ci95_high",
    "residual",
    "residual_ci95_low",
    "residual_ci95_high",
    "adds_up",
    "kernel_body",
    "kernel_body_ci95_low",
    "kernel_body_ci95_high",
];

/// Further columns where a rate or a budget was asked.
const RATES: [&str; 6] = [
    "rate_per_s",
    "core_share",
    "core_share_ci95_low",
    "core_share_ci95_high",
    "budget_share",
    "budget_per_s",
];

/// Further columns where cases make curves, before one for each of their secondary values.
const CURVES: [&str; 12] = [
    "curve",
    "circumstances",
    "at",
    "rate",
    "rate_ci95_low",
    "rate_ci95_high",
    "speed_up",
    "speed_up_ci95_low",
    "speed_up_ci95_high",
    "efficiency",
    "knee",
    "predicted",
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
    render_at(records, Load::default())
}

/// The same, with what attach types cost at a rate, or how many events a share of a core pays for.
pub fn render_at(records: &[Record], load: Load) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rates: &[&str] = match load == Load::default() {
        true => &[],
        false => &RATES,
    };
    let curved = records
        .iter()
        .any(|record| record.layout.scaling().is_some());
    let curves: &[&str] = if curved { &CURVES } else { &[] };
    let further = secondary_names(records, |record| record.layout.scaling().is_some());
    let worked = records
        .iter()
        .any(|record| record.layout.workload().is_some());
    let measured = secondary_names(records, |record| record.layout.workload().is_some());
    let names = CASES.iter().chain(rates).chain(curves).copied();
    let mut head: Vec<String> = names
        .chain(further.iter().copied())
        .map(text::line)
        .collect();
    if worked {
        head.push(VARIANT.to_owned());
        head.extend(measured.iter().flat_map(|name| part_heads(name)));
    }
    writer.write_record(head)?;
    for record in records {
        let parts = Parts::of(record);
        let curves = Curves::of(record);
        for case in &record.cases {
            let head = [
                &record.experiment,
                &record.target,
                &record.machine.kernel,
                &record.started,
            ]
            .map(|text| text::line(text));
            let mut cells: Vec<String> = head
                .into_iter()
                .chain([record.unit.to_string()])
                .chain(case_cells(case))
                .chain(part_cells(
                    parts.as_ref().and_then(|parts| parts.role(case)),
                ))
                .collect();
            if !rates.is_empty() {
                cells.extend(rate_cells(case, record, load));
            }
            if curved {
                cells.extend(curve_cells(case, curves.as_ref(), record));
                cells.extend(further.iter().map(|name| plain(case.secondary_value(name))));
            }
            if worked {
                cells.extend(workload_cells(
                    case,
                    &measured,
                    record.layout.workload().is_some(),
                ));
            }
            writer.write_record(cells)?;
        }
    }
    finish(writer)
}

/// What a case is of a cost's parts.
fn part_cells(role: Option<PartRole<'_>>) -> Vec<String> {
    let cells = |part: Option<Part>| {
        let [low, high] = ends(part.and_then(|part| part.ci95));
        [plain(part.map(|part| part.value)), low, high]
    };
    let (name, part, sum) = match role {
        None => ("", None, None),
        Some(PartRole::Mechanism(part)) => ("mechanism", Some(part), None),
        Some(PartRole::Body(part)) => ("body", Some(part), None),
        Some(PartRole::Tax(part)) => ("tax", Some(part), None),
        Some(PartRole::Together(sum)) => ("together", Some(sum.total), Some(sum)),
    };
    let adds_up = match sum.map(|sum| sum.adds_up) {
        Some(Additive::Yes) => "yes",
        Some(Additive::No) => "no",
        Some(Additive::CantTell) => "can't tell",
        None => "",
    };
    std::iter::once(name.to_owned())
        .chain(cells(part))
        .chain(cells(sum.map(|sum| sum.residual)))
        .chain([adds_up.to_owned()])
        .chain(cells(sum.and_then(|sum| sum.kernel)))
        .collect()
}

/// What a case costs of a core, and how many events a budget pays for.
fn rate_cells(case: &CaseRecord, record: &Record, load: Load) -> Vec<String> {
    let gridded = |asked: Option<f64>| asked.filter(|_| record.layout.grid().is_some());
    let (rate, budget) = (gridded(load.rate), gridded(load.budget));
    let share = rate.and_then(|rate| rate::share(case, record, rate));
    let most = budget.and_then(|budget| rate::most(case, record, budget));
    let [low, high] = ends(share.and_then(|share| share.ci95));
    vec![
        plain(rate),
        plain(share.map(|share| share.value)),
        low,
        high,
        plain(budget),
        plain(most),
    ]
}

/// The secondary values of records that show them.
fn secondary_names(records: &[Record], shows: impl Fn(&Record) -> bool) -> BTreeSet<&str> {
    let shown = records.iter().filter(|record| shows(record));
    shown.flat_map(Record::secondary_names).collect()
}

/// A value with its interval: three columns of that name.
fn part_heads(name: &str) -> [String; 3] {
    ["", "_ci95_low", "_ci95_high"].map(|end| format!("{}{end}", text::line(name)))
}

/// The probe of a case, then every secondary value with its interval.
fn workload_cells(case: &CaseRecord, names: &BTreeSet<&str>, workload: bool) -> Vec<String> {
    let variant = case.factors.get(VARIANT).filter(|_| workload);
    let mut cells = vec![variant.map_or_else(String::new, |name| text::line(name))];
    for name in names {
        let part = case.secondary_part(name).filter(|_| workload);
        let [low, high] = ends(part.and_then(|part| part.ci95));
        cells.extend([plain(part.map(|part| part.value)), low, high]);
    }
    cells
}

/// Where a case stands on a curve, and what follows from that.
fn curve_cells(case: &CaseRecord, curves: Option<&Curves<'_>>, record: &Record) -> Vec<String> {
    let found = curves.and_then(|curves| {
        let mut points = curves.points();
        points.find(|(_, _, point)| std::ptr::eq(point.case, case))
    });
    let Some((group, curve, point)) = found else {
        return vec![String::new(); CURVES.len()];
    };
    let part = |part: Option<Part>| {
        let [low, high] = ends(part.and_then(|part| part.ci95));
        [plain(part.map(|part| part.value)), low, high]
    };
    let CurvePoint {
        threads,
        rate,
        speed_up,
        ..
    } = point;
    let mut cells = vec![
        text::line(curve.series),
        text::line(&group.apart),
        threads.to_string(),
    ];
    cells.extend(part(*rate));
    cells.extend(part(*speed_up));
    cells.push(plain(point.efficiency));
    cells.push(
        curve
            .knee
            .map_or_else(String::new, |knee| (knee == *threads).to_string()),
    );
    let usual = record
        .prediction
        .as_ref()
        .filter(|_| group.apart.is_empty());
    cells.push(plain(
        usual.and_then(|found| found.rate(curve.series, *threads)),
    ));
    cells
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
