//! The page's tables: every number of the record, each with the key that it sorts by.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    record::{Cost, Record, Status},
    report::{
        block::{self, Block, Head},
        cpus,
        matrix::{CellText, Matrix, mark},
        number,
        rows::{Group, PairRow},
        style::Tone,
        text, trials, words,
    },
};

/// A table.
#[derive(Serialize)]
pub(super) struct Table {
    pub(super) title: Cow<'static, str>,
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

/// The head of a column.
#[derive(Serialize)]
pub(super) struct Column {
    name: String,
    number: bool,
}

/// A row.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) tone: Option<Tone>,
    pub(super) cells: Vec<Cell>,
}

/// A cell; `key` is what it sorts by where that is not its text, empty where it has no value.
#[derive(Serialize)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) key: Option<String>,
    pub(super) class: &'static str,
}

/// A cell that sorts by its text.
pub(super) fn words_cell(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        key: None,
        class: "",
    }
}

/// A cell that sorts by a number.
pub(super) fn number_cell(text: impl Into<String>, key: Option<f64>) -> Cell {
    let key = key.filter(|key| key.is_finite());
    Cell {
        text: text.into(),
        key: Some(key.map_or_else(String::new, |key| key.to_string())),
        class: "n",
    }
}

pub(super) fn columns(names: &[(&str, bool)]) -> Vec<Column> {
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

/// A small table; its captions are shown apart.
pub(super) fn block_table(block: Block) -> Table {
    let column = |head: Head| Column {
        name: head.text.replace('\n', ""),
        number: head.number,
    };
    let cell = |(cell, number): (block::Cell, bool)| {
        let class = match (cell.tone, number) {
            (Tone::More, true) => "n more",
            (Tone::More, false) => "more",
            (Tone::Less, true) => "n less",
            (Tone::Less, false) => "less",
            (Tone::Open, true) => "n open",
            (Tone::Open, false) => "open",
            (Tone::Alarm, true) => "n alarm",
            (Tone::Alarm, false) => "alarm",
            (Tone::Plain | Tone::Quiet, true) => "n",
            (Tone::Plain | Tone::Quiet, false) => "",
        };
        let shown = match number {
            true => number_cell(cell.text, cell.key),
            false => words_cell(cell.text),
        };
        Cell { class, ..shown }
    };
    let numbers: Vec<bool> = block.head.iter().map(|head| head.number).collect();
    let row = |cells: Vec<block::Cell>| Row {
        tone: None,
        cells: cells.into_iter().zip(numbers.clone()).map(cell).collect(),
    };
    Table {
        title: block.title.into(),
        caption: String::new(),
        rows: block.rows.into_iter().map(row).collect(),
        columns: block.head.into_iter().map(column).collect(),
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
            let net_interval = match record.unit.is_counted() {
                true => String::new(),
                false => words::net_interval(net),
            };
            let cells = Cells { decimals: 2 };
            Row {
                tone: Some(row.tone).filter(|tone| *tone != Tone::Plain),
                cells: vec![
                    words_cell(row.name.clone()),
                    words_cell(group.name.clone()),
                    number_cell(row.cost.clone(), raw.map(|raw| raw.value)),
                    number_cell(
                        row.interval.clone(),
                        raw.and_then(|raw| Some(raw.ci95.or(raw.loads)?[0])),
                    ),
                    cells.share(raw.and_then(|raw| words::relative_spread(raw, record.unit))),
                    number_cell(
                        format!("{} {net_interval}", row.net).trim().to_owned(),
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
    let (spread, width) = match record.unit.is_counted() {
        true => ("loads", "apart"),
        false => ("95\u{A0}% interval", "±"),
    };
    Table {
        title: Cow::Borrowed("All costs"),
        caption: words::cost_caption(record),
        rows: rows.collect(),
        columns: columns(&[
            ("case", false),
            ("group", false),
            (&unit, true),
            (spread, true),
            (width, true),
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
        let numbers = row
            .cells()
            .into_iter()
            .map(|(text, key)| number_cell(text, key));
        Row {
            tone: None,
            cells: std::iter::once(words_cell(row.name.clone()))
                .chain(numbers)
                .collect(),
        }
    };
    let names = cpus::columns(record);
    let mut header = vec![("case", false)];
    header.extend(names.iter().map(|name| (name.as_str(), true)));
    Some(Table {
        title: Cow::Borrowed("Each CPU, and all together"),
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
            let value = |value| match record.unit.is_counted() {
                true => number_cell(words::value(value, None, record.unit), Some(value)),
                false => cells.value(Some(value)),
            };
            Some(Row {
                tone: None,
                cells: vec![
                    words_cell(row.name.clone()),
                    cells.count(Some(raw.epochs)),
                    cells.count(Some(raw.trials)),
                    cells.value(Some(raw.stddev)),
                    cells.share(Some(raw.cv)),
                    value(raw.min),
                    value(raw.p50),
                    value(raw.p90),
                    value(raw.p99),
                    value(raw.max),
                    cells.count(Some(raw.outliers)),
                ],
            })
        });
    Table {
        title: Cow::Owned(format!("All {}", trials::name(record))),
        caption: format!(
            "{} {}",
            trials::percentile_caption(record),
            match record.unit.is_counted() {
                true => String::new(),
                false => trials::spread_caption(record),
            }
        )
        .trim_end()
        .to_owned(),
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

/// Every comparison; counts have no intervals, so no columns of them.
pub(super) fn pair_table(pairs: &[PairRow<'_>], record: &Record) -> Table {
    let timed = !record.unit.is_counted();
    let row = |pair: &PairRow<'_>| {
        let comparison = pair.comparison;
        let low = |ends: Option<[f64; 2]>| ends.map(|ends| ends[0]);
        let interval = |text: &str, ends| timed.then(|| number_cell(text, low(ends)));
        let mut cells = vec![
            words_cell(pair.case.clone()),
            words_cell(pair.baseline.clone()),
            number_cell(pair.relative.clone(), Some(comparison.relative)),
        ];
        cells.extend(interval(&pair.interval, comparison.relative_ci95));
        cells.push(verdict_cell(&pair.verdict, pair.tone));
        cells.push(number_cell(
            pair.difference.clone(),
            Some(comparison.difference),
        ));
        cells.extend(interval(&pair.difference_interval, comparison.ci95));
        cells.push(Cell {
            class: "wrap",
            ..words_cell(pair.about.clone())
        });
        Row { tone: None, cells }
    };
    let difference = record.unit.to_string();
    let interval = timed.then_some(("95\u{A0}% interval", true));
    let mut names = vec![("case", false), ("against", false), ("relative", true)];
    names.extend(interval);
    names.extend([("verdict", false), (difference.as_str(), true)]);
    names.extend(interval);
    names.push(("question", false));
    Table {
        title: Cow::Borrowed("All comparisons"),
        caption: words::pair_caption(record),
        columns: columns(&names),
        rows: pairs.iter().map(row).collect(),
    }
}

/// A verdict in its colour.
fn verdict_cell(verdict: &str, tone: Tone) -> Cell {
    Cell {
        class: match tone {
            Tone::More => "wrap more",
            Tone::Less => "wrap less",
            Tone::Open => "wrap open",
            _ => "wrap",
        },
        ..words_cell(verdict)
    }
}

/// Every case on every target.
pub(super) fn matrix_table(matrix: &Matrix<'_>) -> Table {
    let mut names = vec![("case".to_owned(), false)];
    for (head, column) in matrix.heads.iter().zip(&matrix.across.columns) {
        names.push((format!("{}, {}", head.label, head.unit), true));
        names.push((words::spread_heading(column.record.unit).to_owned(), true));
        if let Some(first) = head.against.and_then(|first| matrix.heads.get(first)) {
            names.push((format!("against {}", first.label), true));
            names.push(("verdict".to_owned(), false));
        }
    }
    let names: Vec<(&str, bool)> = names.iter().map(|name| (name.0.as_str(), name.1)).collect();
    let rows = matrix.rows().map(|row| {
        let case = &matrix.across.rows[row.index];
        let mut cells = vec![words_cell(text::line(case.name))];
        for ((place, text), cell) in row.cells.iter().enumerate().zip(&case.cells) {
            let record = matrix.across.columns[place].record;
            let cost = cell.case.and_then(|case| record.cost(case));
            cells.extend(target_cells(
                text,
                cost,
                matrix.heads[place].against.is_some(),
            ));
        }
        Row { tone: None, cells }
    });
    Table {
        title: Cow::Borrowed("All cases on all targets"),
        caption: "Every number, with what surrounds it.".to_owned(),
        rows: rows.collect(),
        columns: columns(&names),
    }
}

/// One case on one target: its cost, how far that is open, and the difference where it is compared.
fn target_cells(text: &CellText, cost: Option<Cost>, compared: bool) -> Vec<Cell> {
    let value = format!("{}{}", text.value, mark(text.footnote));
    let spread = match text.spread.starts_with("same") {
        true => "same",
        false => text.range.as_str(),
    };
    let mut cells = vec![
        Cell {
            class: match text.tone {
                Tone::Alarm => "n alarm",
                _ => "n",
            },
            ..number_cell(value, cost.map(|cost| cost.value))
        },
        number_cell(spread, cost.and_then(|cost| Some(cost.ends?[0]))),
    ];
    if compared {
        let found = text.difference.as_ref();
        let relative = found.map_or_else(String::new, |found| {
            format!("{} {}", found.relative, found.interval)
        });
        cells.push(number_cell(
            relative.trim_end(),
            found.map(|found| found.difference.relative),
        ));
        cells.push(found.map_or_else(
            || words_cell(""),
            |found| verdict_cell(found.verdict, found.tone),
        ));
    }
    cells
}
