//! The page's tables: every number of the record, each with the key that it sorts by.

use serde::Serialize;

use crate::{
    record::{Record, Status},
    report::{
        cpus, number,
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

/// The text and key of optional numbers, as cells.
struct Cells {
    decimals: usize,
}

impl Cells {
    fn value(&self, value: Option<f64>) -> Cell {
        let text = value.map_or_else(String::new, |value| number::fixed(value, self.decimals));
        number_cell(text, value)
    }

    fn share(&self, share: Option<f64>) -> Cell {
        number_cell(share.map_or_else(String::new, number::percent), share)
    }

    fn count(&self, count: Option<usize>) -> Cell {
        let count = count.map(|count| count as u64);
        let text = count.map_or_else(String::new, number::count);
        number_cell(text, count.map(|count| count as f64))
    }
}

/// What every case costs.
pub(super) fn cost_table(groups: &[Group<'_>], record: &Record) -> Table {
    let unit = record.unit.to_string();
    let rows = groups.iter().flat_map(|group| {
        group.rows.iter().map(|row| {
            let raw = row
                .case
                .raw
                .as_ref()
                .filter(|_| row.case.status == Status::Ok);
            let net = row.case.net.as_ref().filter(|_| raw.is_some());
            let cells = Cells { decimals: 2 };
            Row {
                tone: Some(row.tone).filter(|tone| *tone != Tone::Plain),
                cells: vec![
                    words_cell(row.name.clone()),
                    words_cell(group.name.clone()),
                    number_cell(row.cost.clone(), raw.map(|raw| raw.value)),
                    number_cell(row.interval.clone(), raw.and_then(|raw| Some(raw.ci95?[0]))),
                    cells.share(raw.and_then(words::half_width)),
                    number_cell(
                        format!("{} {}", row.net, words::net_interval(net))
                            .trim()
                            .to_owned(),
                        net.map(|net| net.value.unwrap_or(net.bracket[0])),
                    ),
                    Cell {
                        class: "wrap",
                        ..words_cell(row.note())
                    },
                ],
            }
        })
    });
    Table {
        title: "All costs",
        caption: words::cost_caption(record),
        rows: rows.collect(),
        columns: columns(&[
            ("case", false),
            ("group", false),
            (&unit, true),
            ("95\u{A0}% interval", true),
            ("±", true),
            ("net", true),
            ("note", false),
        ]),
    }
}

/// What each CPU did; `None` where there was one.
pub(super) fn cpu_table(record: &Record) -> Option<Table> {
    let rows = cpus::rows(record);
    if rows.is_empty() {
        return None;
    }
    let row = |row: cpus::CpuRow| {
        let keys = row.costs.iter().copied().chain([row.ops_per_s]);
        let mut cells = row.cells().into_iter();
        let name = words_cell(cells.next().unwrap_or_default());
        let numbers = cells.zip(keys).map(|(text, key)| number_cell(text, key));
        Row {
            tone: None,
            cells: std::iter::once(name).chain(numbers).collect(),
        }
    };
    let names = cpus::names(record);
    let mut header = vec![("case", false)];
    header.extend(names.iter().map(|name| (name.as_str(), true)));
    header.push(("together", true));
    Some(Table {
        title: "Each CPU, and all together",
        caption: cpus::CAPTION.to_owned(),
        rows: rows.into_iter().map(row).collect(),
        columns: columns(&header),
    })
}

/// How the batch means of every case lie.
pub(super) fn batch_table(groups: &[Group<'_>], record: &Record) -> Table {
    let rows = groups
        .iter()
        .flat_map(|group| &group.rows)
        .filter_map(|row| {
            let raw = row
                .case
                .raw
                .as_ref()
                .filter(|_| row.case.status == Status::Ok)?;
            let cells = Cells {
                decimals: number::decimals(raw.stddev).min(2),
            };
            Some(Row {
                tone: None,
                cells: vec![
                    words_cell(row.name.clone()),
                    cells.count(Some(raw.epochs)),
                    cells.count(Some(raw.trials)),
                    cells.value(Some(raw.stddev)),
                    cells.share(Some(raw.cv)),
                    cells.value(Some(raw.min)),
                    cells.value(Some(raw.p50)),
                    cells.value(Some(raw.p90)),
                    cells.value(Some(raw.p99)),
                    cells.value(Some(raw.max)),
                    cells.count(Some(raw.outliers)),
                ],
            })
        });
    Table {
        title: "All batch means",
        caption: format!(
            "{} {}",
            words::PERCENTILE_CAPTION,
            words::spread_caption(record)
        ),
        rows: rows.collect(),
        columns: columns(&[
            ("case", false),
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
        ]),
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
                    number_cell(pair.difference.clone(), Some(comparison.difference)),
                    number_cell(pair.difference_interval.clone(), low(comparison.ci95)),
                    Cell {
                        class: "wrap",
                        ..words_cell(pair.about.clone())
                    },
                ],
            }
        })
        .collect();
    let difference = record.unit.to_string();
    Table {
        title: "All comparisons",
        caption: words::pair_caption(record),
        columns: columns(&[
            ("case", false),
            ("against", false),
            ("relative", true),
            ("95\u{A0}% interval", true),
            ("verdict", false),
            (&difference, true),
            ("95\u{A0}% interval", true),
            ("question", false),
        ]),
        rows,
    }
}
