//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none. A table is a list of columns, each with its name and its value.

use std::collections::BTreeSet;

use anyhow::Result;
use bpfcost_stats::Additive;
use serde::Serialize;

use crate::{
    record::{
        BudgetVerdict, CaseRecord, Comparison, Curve, CurveGroup, CurvePoint, Curves, Net, Part,
        PartRole, Parts, PartsSum, Raw, Record, Status,
    },
    report::{
        rate::{self, Load},
        text,
    },
    workload::VARIANT,
};

/// Columns of [`render`]: their name, and what they hold of a case.
type Column = (&'static str, Of);

/// What columns hold of a case; empty where there is none.
#[derive(Clone, Copy)]
enum Of {
    /// Words.
    Text(fn(&Line<'_>) -> Option<String>),
    /// A number.
    Number(fn(&Line<'_>) -> Option<f64>),
    /// The two ends of an interval: `_low`, `_high`.
    Ends(fn(&Line<'_>) -> Option<[f64; 2]>),
    /// A number with its interval: `_ci95_low`, `_ci95_high`.
    Part(fn(&Line<'_>) -> Option<Part>),
}

impl Of {
    fn heads(self, name: &str) -> Vec<String> {
        let ends: &[&str] = match self {
            Of::Text(_) | Of::Number(_) => &[""],
            Of::Ends(_) => &["_low", "_high"],
            Of::Part(_) => &PART,
        };
        ends.iter().map(|end| format!("{name}{end}")).collect()
    }

    fn cells(self, line: &Line<'_>) -> Vec<String> {
        match self {
            Of::Text(of) => vec![of(line).unwrap_or_default()],
            Of::Number(of) => vec![plain(of(line))],
            Of::Ends(of) => vec![low(of(line)), high(of(line))],
            Of::Part(of) => of_part(of(line)),
        }
    }
}

/// What stands behind the name of a value with its interval.
const PART: [&str; 3] = ["", "_ci95_low", "_ci95_high"];

fn of_part(part: Option<Part>) -> Vec<String> {
    let ends = part.and_then(|part| part.ci95);
    vec![plain(part.map(|part| part.value)), low(ends), high(ends)]
}

/// The columns of every case.
const CASES: [Column; 34] = [
    (
        "experiment",
        Of::Text(|line| Some(line.record.experiment.clone())),
    ),
    ("target", Of::Text(|line| Some(line.record.target.clone()))),
    (
        "kernel",
        Of::Text(|line| Some(line.record.machine.kernel.clone())),
    ),
    (
        "started",
        Of::Text(|line| Some(line.record.started.clone())),
    ),
    ("unit", Of::Text(|line| Some(line.record.unit.to_string()))),
    ("case", Of::Text(|line| Some(line.case.name.clone()))),
    ("group", Of::Text(|line| Some(line.case.group.clone()))),
    ("role", Of::Text(|line| word(line.case.role))),
    ("status", Of::Text(|line| word(line.case.status))),
    ("epochs", Of::Number(|line| Some(line.raw?.epochs as f64))),
    ("trials", Of::Number(|line| Some(line.raw?.trials as f64))),
    ("value", Of::Number(|line| Some(line.raw?.value))),
    ("ci95", Of::Ends(|line| line.raw?.ci95)),
    ("loads", Of::Ends(|line| line.raw?.loads)),
    (
        "repeats",
        Of::Number(|line| Some(line.raw?.repeats? as f64)),
    ),
    ("net", Of::Ends(|line| Some(line.net?.bracket))),
    ("net_value", Of::Number(|line| line.net?.value)),
    ("net_ci95", Of::Ends(|line| line.net?.ci95)),
    (
        "distinguishable",
        Of::Text(|line| Some(line.net?.distinguishable.to_string())),
    ),
    ("min", Of::Number(|line| Some(line.raw?.min))),
    ("p50", Of::Number(|line| Some(line.raw?.p50))),
    ("p90", Of::Number(|line| Some(line.raw?.p90))),
    ("p99", Of::Number(|line| Some(line.raw?.p99))),
    ("max", Of::Number(|line| Some(line.raw?.max))),
    ("stddev", Of::Number(|line| Some(line.raw?.stddev))),
    ("cv", Of::Number(|line| Some(line.raw?.cv))),
    (
        "outliers",
        Of::Number(|line| Some(line.raw?.outliers as f64)),
    ),
    ("problem", Of::Text(|line| problem(line.case))),
    ("part", Of::Text(|line| Some(line.part_name.to_owned()))),
    ("part_value", Of::Number(|line| Some(line.part?.value))),
    ("part_ci95", Of::Ends(|line| line.part?.ci95)),
    ("residual", Of::Part(|line| Some(line.sum?.residual))),
    (
        "adds_up",
        Of::Text(|line| {
            let words = match line.sum?.adds_up {
                Additive::Yes => "yes",
                Additive::No => "no",
                Additive::CantTell => "can't tell",
            };
            Some(words.to_owned())
        }),
    ),
    ("kernel_body", Of::Part(|line| line.sum?.kernel)),
];

/// Further columns where a rate or a budget was asked.
const RATES: [Column; 4] = [
    ("rate_per_s", Of::Number(|line| line.load.rate)),
    (
        "core_share",
        Of::Part(|line| rate::share(line.case, line.record, line.load.rate?)),
    ),
    ("budget_share", Of::Number(|line| line.load.budget)),
    (
        "budget_per_s",
        Of::Number(|line| rate::most(line.case, line.record, line.load.budget?)),
    ),
];

/// Further columns where cases make curves, before one for each of their secondary values.
const CURVES: [Column; 8] = [
    (
        "curve",
        Of::Text(|line| Some(line.point?.1.series.to_owned())),
    ),
    (
        "circumstances",
        Of::Text(|line| Some(line.point?.0.apart.clone())),
    ),
    (
        "at",
        Of::Number(|line| Some(f64::from(line.point?.2.threads))),
    ),
    ("rate", Of::Part(|line| line.point?.2.rate)),
    ("speed_up", Of::Part(|line| line.point?.2.speed_up)),
    ("efficiency", Of::Number(|line| line.point?.2.efficiency)),
    (
        "knee",
        Of::Text(|line| {
            let (_, curve, point) = line.point?;
            Some((curve.knee? == point.threads).to_string())
        }),
    ),
    (
        "predicted",
        Of::Number(|line| {
            let (group, curve, point) = line.point?;
            let usual = line.record.prediction.as_ref();
            let usual = usual.filter(|_| group.apart.is_empty());
            usual.and_then(|found| found.rate(curve.series, point.threads))
        }),
    ),
];

/// A column of [`comparisons`].
type PairColumn = (&'static str, fn(&Record, &Comparison) -> String);

/// The columns of every comparison.
const COMPARISONS: [PairColumn; 17] = [
    ("experiment", |record, _| text::line(&record.experiment)),
    ("target", |record, _| text::line(&record.target)),
    ("started", |record, _| text::line(&record.started)),
    ("unit", |record, _| record.unit.to_string()),
    ("case", |_, pair| text::line(&pair.case)),
    ("baseline", |_, pair| text::line(&pair.baseline)),
    ("difference", |_, pair| plain(Some(pair.difference))),
    ("ci95_low", |_, pair| low(pair.ci95)),
    ("ci95_high", |_, pair| high(pair.ci95)),
    ("relative", |_, pair| plain(Some(pair.relative))),
    ("relative_ci95_low", |_, pair| low(pair.relative_ci95)),
    ("relative_ci95_high", |_, pair| high(pair.relative_ci95)),
    ("p", |_, pair| plain(Some(pair.p))),
    ("verdict", |_, pair| word(pair.verdict).unwrap_or_default()),
    ("detectable_percent", |_, pair| plain(pair.detectable)),
    ("resolve_s", |_, pair| plain(pair.resolve_s)),
    ("budget", |_, pair| match pair.budget {
        Some(BudgetVerdict::Within) => "within".to_owned(),
        Some(BudgetVerdict::Over) => "over".to_owned(),
        Some(BudgetVerdict::CantTell) => "can't tell".to_owned(),
        None => String::new(),
    }),
];

/// What a line of [`render`] is made from.
struct Line<'a> {
    record: &'a Record,
    case: &'a CaseRecord,
    /// What was measured, of a case that is valid.
    raw: Option<&'a Raw>,
    net: Option<&'a Net>,
    /// What the case is of a cost's parts.
    part_name: &'static str,
    part: Option<Part>,
    sum: Option<&'a PartsSum>,
    /// What was asked, where costs answer it.
    load: Load,
    /// Where the case stands on a curve.
    point: Option<(&'a CurveGroup<'a>, &'a Curve<'a>, &'a CurvePoint<'a>)>,
}

impl<'a> Line<'a> {
    fn new(
        case: &'a CaseRecord,
        record: &'a Record,
        (parts, curves): (Option<&'a Parts>, Option<&'a Curves<'a>>),
        load: Load,
    ) -> Self {
        let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
        let (part_name, part, sum) = match parts.and_then(|parts| parts.role(case)) {
            None => ("", None, None),
            Some(PartRole::Mechanism(part)) => ("mechanism", Some(part), None),
            Some(PartRole::Body(part)) => ("body", Some(part), None),
            Some(PartRole::Tax(part)) => ("tax", Some(part), None),
            Some(PartRole::Together(sum)) => ("together", Some(sum.total), Some(sum)),
        };
        let on_it = |curves: &'a Curves<'a>| {
            let mut points = curves.points();
            points.find(|(_, _, point)| std::ptr::eq(point.case, case))
        };
        Line {
            record,
            case,
            raw,
            net: raw.and(case.net.as_ref()),
            part_name,
            part,
            sum,
            load: match record.layout.grid() {
                Some(_) => load,
                None => Load::default(),
            },
            point: curves.and_then(on_it),
        }
    }
}

/// Every case of every record.
pub fn render(records: &[Record]) -> Result<String> {
    render_at(records, Load::default())
}

/// The same, with what the cells of a grid cost at a rate, or how many operations a share of a core pays for.
pub fn render_at(records: &[Record], load: Load) -> Result<String> {
    let curved = |record: &Record| record.layout.scaling().is_some();
    let worked = |record: &Record| record.layout.workload().is_some();
    let mut columns = CASES.to_vec();
    if load != Load::default() {
        columns.extend(RATES);
    }
    if records.iter().any(curved) {
        columns.extend(CURVES);
    }
    let of_curves = secondary_names(records, curved);
    let of_workloads = secondary_names(records, worked);
    let heads = columns.iter().flat_map(|(name, of)| of.heads(name));
    let mut head: Vec<String> = heads.collect();
    head.extend(of_curves.iter().map(|name| (*name).to_owned()));
    let variants = records.iter().any(worked).then_some(VARIANT);
    head.extend(variants.map(str::to_owned));
    for name in &of_workloads {
        head.extend(PART.map(|end| format!("{name}{end}")));
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head.iter().map(|name| text::line(name)))?;
    for record in records {
        let (parts, curves) = (Parts::of(record), Curves::of(record));
        for case in &record.cases {
            let line = Line::new(case, record, (parts.as_ref(), curves.as_ref()), load);
            let cells = columns.iter().flat_map(|(_, of)| of.cells(&line));
            let mut cells: Vec<String> = cells.collect();
            cells.extend(
                of_curves
                    .iter()
                    .map(|name| plain(case.secondary_value(name))),
            );
            cells.extend(variants.map(|name| {
                let variant = case.factors.get(name).filter(|_| worked(record));
                variant.cloned().unwrap_or_default()
            }));
            cells.extend(
                of_workloads
                    .iter()
                    .flat_map(|name| of_part(case.secondary_part(name).filter(|_| worked(record)))),
            );
            writer.write_record(cells.iter().map(|cell| text::line(cell)))?;
        }
    }
    finish(writer)
}

/// Every comparison of every record.
pub fn comparisons(records: &[Record]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COMPARISONS.map(|column| column.0))?;
    for record in records {
        for pair in &record.comparisons {
            writer.write_record(COMPARISONS.map(|column| column.1(record, pair)))?;
        }
    }
    finish(writer)
}

/// The secondary values of records that show them.
fn secondary_names(records: &[Record], shows: impl Fn(&Record) -> bool) -> BTreeSet<&str> {
    let shown = records.iter().filter(|record| shows(record));
    shown.flat_map(Record::secondary_names).collect()
}

/// Why a case has no number.
fn problem(case: &CaseRecord) -> Option<String> {
    match case.status {
        Status::Ok => None,
        Status::Invalid => {
            let problems: Vec<String> = case.problems.iter().map(ToString::to_string).collect();
            Some(problems.join("; "))
        }
        Status::Unsupported => case.reason.clone(),
    }
}

/// A word as JSON has it.
fn word(value: impl Serialize) -> Option<String> {
    let value = serde_json::to_value(value).ok()?;
    value.as_str().map(str::to_owned)
}

/// The shortest text that reads back as the same number.
fn plain(value: Option<f64>) -> String {
    let value = value.filter(|value| value.is_finite());
    value.map_or_else(String::new, |value| value.to_string())
}

fn low(interval: Option<[f64; 2]>) -> String {
    plain(interval.map(|ends| ends[0]))
}

fn high(interval: Option<[f64; 2]>) -> String {
    plain(interval.map(|ends| ends[1]))
}

fn finish(writer: csv::Writer<Vec<u8>>) -> Result<String> {
    Ok(String::from_utf8(writer.into_inner()?)?)
}
