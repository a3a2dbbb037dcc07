//! The page's tables: every number of the record, each with the key that it sorts by.

use serde::Serialize;

use crate::{
    record::{Record, Status},
    report::{
        number,
        rows::{Group, PairRow},
        style::Tone,
        words,
    },
};

/// A table.
#[derive(Serialize)]
pub(super) struct Table {
    title: &'static str,
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    number: bool,
}

#[derive(Serialize)]
struct Row {
    tone: Option<Tone>,
    cells: Vec<Cell>,
}

/// A cell; `key` is what it sorts by where that is not its text, empty where it has no value.
#[derive(Serialize)]
struct Cell {
    text: String,
    key: Option<String>,
    class: &'static str,
}

/// A cell that sorts by its text.
fn words_cell(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        key: None,
        class: "",
    }
}

/// A cell that sorts by a number.
fn number_cell(text: impl Into<String>, key: Option<f64>) -> Cell {
    let key = key.filter(|key| key.is_finite());
    Cell {
        text: text.into(),
        key: Some(key.map_or_else(String::new, |key| key.to_string())),
        class: "n",
    }
}

fn columns(names: &[(&str, bool)]) -> Vec<Column> {
    names
        .iter()
        .map(|(name, number)| Column {
            name: (*name).to_owned(),
            number: *number,
        })
        .collect()
}

/// Every case.
pub(super) fn case_table(groups: &[Group<'_>], record: &Record) -> Table {
    let unit = record.unit.to_string();
    let rows = groups
        .iter()
        .flat_map(|group| group.rows.iter().map(move |row| (group, row)))
        .map(|(group, row)| {
            let raw = row
                .case
                .raw
                .as_ref()
                .filter(|_| row.case.status == Status::Ok);
            let net = row.case.net.as_ref().filter(|_| raw.is_some());
            let decimals = raw.map_or(2, |raw| number::decimals(raw.stddev).min(2));
            let value = |value: Option<f64>| {
                let text = value.map_or_else(String::new, |value| number::fixed(value, decimals));
                number_cell(text, value)
            };
            let share = |share: Option<f64>| {
                number_cell(share.map_or_else(String::new, number::percent), share)
            };
            let count = |count: Option<usize>| {
                let count = count.map(|count| count as u64);
                number_cell(
                    count.map_or_else(String::new, number::count),
                    count.map(|n| n as f64),
                )
            };
            let mut net_text = row.net.clone();
            let net_interval = words::net_interval(net);
            if !net_interval.is_empty() {
                net_text += &format!(" {net_interval}");
            }
            let cells = vec![
                words_cell(row.name.clone()),
                words_cell(group.name.clone()),
                number_cell(row.cost.clone(), raw.map(|raw| raw.value)),
                number_cell(row.interval.clone(), raw.and_then(|raw| Some(raw.ci95?[0]))),
                share(raw.and_then(words::half_width)),
                number_cell(net_text, net.map(|net| net.value.unwrap_or(net.bracket[0]))),
                count(raw.map(|raw| raw.epochs)),
                count(raw.map(|raw| raw.trials)),
                value(raw.map(|raw| raw.stddev)),
                share(raw.map(|raw| raw.cv)),
                value(raw.map(|raw| raw.min)),
                value(raw.map(|raw| raw.p50)),
                value(raw.map(|raw| raw.p90)),
                value(raw.map(|raw| raw.p99)),
                value(raw.map(|raw| raw.max)),
                count(raw.map(|raw| raw.outliers)),
                Cell {
                    class: "wrap",
                    ..words_cell(row.note())
                },
            ];
            Row {
                tone: Some(row.tone).filter(|tone| *tone != Tone::Plain),
                cells,
            }
        })
        .collect();
    Table {
        title: "All numbers",
        caption: format!(
            "{} {} {}",
            words::cost_caption(record),
            words::PERCENTILE_CAPTION,
            words::spread_caption(record)
        ),
        columns: columns(&[
            ("case", false),
            ("group", false),
            (&unit, true),
            ("95\u{A0}% interval", true),
            ("±", true),
            ("net", true),
            ("epochs", true),
            ("trials", true),
            ("stddev", true),
            ("CV", true),
            ("min", true),
            ("p50", true),
            ("p90", true),
            ("p99", true),
            ("max", true),
            ("outliers", true),
            ("note", false),
        ]),
        rows,
    }
}

/// Every comparison.
pub(super) fn pair_table(pairs: &[PairRow<'_>], record: &Record) -> Table {
    let rows = pairs
        .iter()
        .map(|pair| {
            let comparison = pair.comparison;
            let low = |ends: Option<[f64; 2]>| ends.map(|ends| ends[0]);
            Row {
                tone: None,
                cells: vec![
                    words_cell(pair.case.clone()),
                    words_cell(pair.baseline.clone()),
                    words_cell(pair.about.clone()),
                    number_cell(pair.difference.clone(), Some(comparison.difference)),
                    number_cell(pair.difference_interval.clone(), low(comparison.ci95)),
                    number_cell(pair.relative.clone(), Some(comparison.relative)),
                    number_cell(pair.interval.clone(), low(comparison.relative_ci95)),
                    Cell {
                        class: match pair.tone {
                            Tone::More => "wrap more",
                            Tone::Less => "wrap less",
                            Tone::Open => "wrap open",
                            _ => "wrap",
                        },
                        ..words_cell(pair.verdict.clone())
                    },
                ],
            }
        })
        .collect();
    let difference = format!("difference, {}", record.unit);
    Table {
        title: "All comparisons",
        caption: words::pair_caption(record),
        columns: columns(&[
            ("case", false),
            ("against", false),
            ("question", false),
            (&difference, true),
            ("95\u{A0}% interval", true),
            ("relative", true),
            ("95\u{A0}% interval", true),
            ("verdict", false),
        ]),
        rows,
    }
}
