//! CSV for spreadsheets and scripts: one line per case, or per comparison; plain numbers, empty
//! where there is none. A line is a list of columns, each with its name and its value; the head has all of them.

use anyhow::Result;

use crate::rate::{self, EventLoad};
use bpfcost_model::{OFF, Role, VARIANT};
use bpfcost_record::{
    BudgetVerdict, CaseRecord, ComparisonRecord, CostEstimate, Curves, Raw, Record, Status,
    VerdictRecord,
};
use bpfcost_text::line;

/// A column of a line: its name, and what stands there.
pub type CsvField = (String, String);

/// Further columns of a record's cases.
pub type CsvColumns<'a> = Box<dyn Fn(&CaseRecord) -> Vec<CsvField> + 'a>;

type PairColumn = (&'static str, fn(&Record, &ComparisonRecord) -> String);

const COMPARISONS: [PairColumn; 24] = [
    ("experiment", |record, _| line(&record.experiment)),
    ("target", |record, _| line(&record.target)),
    ("started", |record, _| line(&record.started)),
    ("unit", |record, _| record.unit.to_string()),
    ("case", |_, pair| line(&pair.case)),
    ("baseline", |_, pair| line(&pair.baseline)),
    ("difference", |_, pair| plain(Some(pair.difference))),
    ("ci95_low", |_, pair| low(pair.ci95)),
    ("ci95_high", |_, pair| high(pair.ci95)),
    ("relative", |_, pair| plain(Some(pair.relative))),
    ("relative_ci95_low", |_, pair| low(pair.relative_ci95)),
    ("relative_ci95_high", |_, pair| high(pair.relative_ci95)),
    ("relative_ci90_low", |_, pair| low(pair.relative_ci90)),
    ("relative_ci90_high", |_, pair| high(pair.relative_ci90)),
    ("total_relative", |_, pair| {
        plain(pair.totals.map(|totals| totals.relative))
    }),
    ("total_relative_ci95_low", |_, pair| {
        low(pair.totals.map(|totals| totals.ci95))
    }),
    ("total_relative_ci95_high", |_, pair| {
        high(pair.totals.map(|totals| totals.ci95))
    }),
    ("total_apart", |_, pair| {
        text_or_empty(pair.totals.map(|totals| totals.apart))
    }),
    ("p", |_, pair| plain(Some(pair.p))),
    ("verdict", |_, pair| match pair.verdict {
        VerdictRecord::Slower => "slower".to_owned(),
        VerdictRecord::Faster => "faster".to_owned(),
        VerdictRecord::Same => "same".to_owned(),
        VerdictRecord::Unresolved => "unresolved".to_owned(),
    }),
    ("detectable_percent", |_, pair| plain(pair.detectable)),
    ("resolve_s", |_, pair| plain(pair.resolve_s)),
    ("budget", |_, pair| match pair.budget {
        Some(BudgetVerdict::Within) => "within".to_owned(),
        Some(BudgetVerdict::Over) => "over".to_owned(),
        Some(BudgetVerdict::CantTell) => "can't tell".to_owned(),
        None => String::new(),
    }),
    ("undisturbed", |_, pair| pair.undisturbed.to_string()),
];

/// Every case of every record, with what they cost at a rate, or how many events a share of a core pays for, where
/// `load` asks for it; and with the columns that their experiments have of their own.
pub fn render<'a>(
    records: &'a [Record],
    load: EventLoad,
    extra_columns: impl Fn(&'a Record) -> Vec<CsvColumns<'a>>,
) -> Result<String> {
    let mut head: Vec<String> = Vec::new();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for record in records {
        let (curves, extras) = (Curves::from_record(record), extra_columns(record));
        for case in &record.cases {
            let mut columns = case_columns(case, record);
            columns.extend(rates(case, record, load));
            columns.extend(
                curves
                    .as_ref()
                    .and_then(|curves| on_curve(case, curves))
                    .into_iter()
                    .flatten(),
            );
            columns.extend(secondary(case, record));
            columns.extend(extras.iter().flat_map(|extra| extra(case)));
            let mut line = vec![String::new(); head.len()];
            for (name, cell) in columns {
                let position = head.iter().position(|heading| *heading == name);
                match position {
                    // The first of a name counts.
                    Some(place) if line[place].is_empty() => line[place] = cell,
                    Some(_) => {}
                    None => {
                        head.push(name);
                        line.push(cell);
                    }
                }
            }
            lines.push(line);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&head)?;
    for mut line in lines {
        line.resize(head.len(), String::new());
        writer.write_record(line)?;
    }
    finish(writer)
}

fn field(name: &str, cell: impl Into<String>) -> CsvField {
    (name.to_owned(), cell.into())
}

fn interval(name: &str, ends: Option<[f64; 2]>) -> [CsvField; 2] {
    [
        (format!("{name}_low"), low(ends)),
        (format!("{name}_high"), high(ends)),
    ]
}

fn case_columns(case: &CaseRecord, record: &Record) -> Vec<CsvField> {
    let raw = case.raw.as_ref().filter(|_| case.status == Status::Ok);
    let net = raw.and(case.net.as_ref());
    let of_raw = |value: fn(&Raw) -> f64| plain(raw.map(value));
    let role = match case.role {
        Role::Case => "case",
        Role::Floor => "floor",
    };
    let status = match case.status {
        Status::Ok => "ok",
        Status::Invalid => "invalid",
        Status::Unsupported => "unsupported",
    };
    let mut columns = vec![
        field("experiment", line(&record.experiment)),
        field("target", line(&record.target)),
        field("kernel", line(&record.machine.kernel)),
        field("started", line(&record.started)),
        field("unit", record.unit.to_string()),
        field("case", line(&case.name)),
        field("group", line(&case.group)),
        field("role", role),
        field("status", status),
        field("epochs", text_or_empty(raw.map(|raw| raw.epochs))),
        field("trials", text_or_empty(raw.map(|raw| raw.trials))),
        field("value", of_raw(|raw| raw.value)),
    ];
    columns.extend(interval("ci95", raw.and_then(|raw| raw.ci95)));
    columns.extend(interval("loads", raw.and_then(|raw| raw.loads)));
    columns.push(field(
        "repeats",
        text_or_empty(raw.and_then(|raw| raw.repeats)),
    ));
    columns.extend(interval("net", net.map(|net| net.bracket)));
    columns.push(field("net_value", plain(net.and_then(|net| net.value))));
    columns.extend(interval("net_ci95", net.and_then(|net| net.ci95)));
    columns.extend([
        field(
            "distinguishable",
            text_or_empty(net.map(|net| net.distinguishable)),
        ),
        field("min", of_raw(|raw| raw.min)),
        field("p50", of_raw(|raw| raw.p50)),
        field("p90", of_raw(|raw| raw.p90)),
        field("p99", of_raw(|raw| raw.p99)),
        field("max", of_raw(|raw| raw.max)),
        field("stddev", of_raw(|raw| raw.stddev)),
        field("cv", of_raw(|raw| raw.cv)),
        field("outliers", text_or_empty(raw.map(|raw| raw.outliers))),
        field("problem", line(&problem(case))),
    ]);
    let known = case.undisturbed.as_ref().filter(|_| raw.is_some());
    columns.extend([
        field("undisturbed_share", plain(known.map(|known| known.share))),
        field("as_found", plain(known.map(|known| known.as_found))),
    ]);
    columns.extend(interval(
        "as_found_ci95",
        known.and_then(|known| known.as_found_ci95),
    ));
    columns
}

/// Share of a core at the rate that was asked for, and the rate that a share of a core pays for.
fn rates(case: &CaseRecord, record: &Record, load: EventLoad) -> Vec<CsvField> {
    if load == EventLoad::default() || !record.layout.compares_nets() {
        return Vec::new();
    }
    let share = load.rate.and_then(|rate| rate::share(case, record, rate));
    let most = load
        .core_share
        .and_then(|share| rate::most(case, record, share));
    let mut columns = vec![
        field("rate_per_s", plain(load.rate)),
        field("core_share", plain(share.map(|share| share.value))),
    ];
    columns.extend(interval(
        "core_share_ci95",
        share.and_then(|share| share.ci95),
    ));
    columns.push(field("share_limit", plain(load.core_share)));
    columns.push(field("share_limit_per_s", plain(most)));
    columns
}

/// Position of a case on a curve; `None` if it is on none.
fn on_curve(case: &CaseRecord, curves: &Curves<'_>) -> Option<Vec<CsvField>> {
    let mut points = curves.points();
    let entry = points.find(|(_, _, point)| std::ptr::eq(point.case, case));
    let (group, curve, point) = entry?;
    let knee = curve.knee.map(|knee| knee == point.threads);
    let mut columns = vec![
        field("curve", line(curve.series)),
        field("circumstances", line(&group.apart)),
        field("at", point.threads.to_string()),
    ];
    columns.extend(with_ends("rate", "rate", point.rate));
    columns.extend(with_ends("speed_up", "speed_up", point.speed_up));
    columns.push(field("efficiency", plain(point.efficiency)));
    columns.push(field("knee", text_or_empty(knee)));
    Some(columns)
}

/// The further values of a case's trials, where its layout shows them.
fn secondary(case: &CaseRecord, record: &Record) -> Vec<CsvField> {
    let names = case.secondary.keys();
    let names = names.map(|name| (line(name), case.secondary_part(name)));
    if record.layout.compares_rates() {
        return names.map(|(name, part)| (name, value(part))).collect();
    }
    if !record.layout.times_windows() {
        return Vec::new();
    }
    let variant = case.factors.get(VARIANT);
    let variant = variant.map_or_else(String::new, |name| line(name));
    let values = names.flat_map(|(name, part)| with_ends(&name, &name, part));
    std::iter::once(field(VARIANT, variant))
        .chain(total(case, record))
        .chain(values)
        .collect()
}

/// Total of a workload's case over all windows, and its difference from no probe.
fn total(case: &CaseRecord, record: &Record) -> Vec<CsvField> {
    let off = |baseline: &str| {
        let case = record.case(baseline);
        case.is_some_and(|one| one.factors.get(VARIANT).is_some_and(|name| name == OFF))
    };
    let mut comparisons = record.comparisons.iter();
    let against_off = comparisons.find(|one| one.case == case.name && off(&one.baseline));
    let totals = against_off.and_then(|one| one.totals);
    let mut columns = vec![field("total", plain(case.total()))];
    columns.extend(with_ends(
        "total_relative",
        "total_relative",
        totals.map(|totals| CostEstimate {
            value: totals.relative,
            ci95: Some(totals.ci95),
        }),
    ));
    columns
}

/// Columns of a value and of its interval, which start with a name each.
pub fn with_ends(name: &str, ends_name: &str, part: Option<CostEstimate>) -> [CsvField; 3] {
    let [low, high] = interval(
        &format!("{ends_name}_ci95"),
        part.and_then(|part| part.ci95),
    );
    [field(name, value(part)), low, high]
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

/// Reason that a case has no number.
fn problem(case: &CaseRecord) -> String {
    match case.status {
        Status::Ok => String::new(),
        Status::Invalid => {
            let problems: Vec<String> = case.problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        }
        Status::Unsupported => case.reason.clone().unwrap_or_default(),
    }
}

/// The shortest text that reads back as the same number; empty without one.
pub fn plain(value: Option<f64>) -> String {
    text_or_empty(value.filter(|value| value.is_finite()))
}

fn text_or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn value(part: Option<CostEstimate>) -> String {
    plain(part.map(|part| part.value))
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
