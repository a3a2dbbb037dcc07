//! The page's tables: every number of the record, each with the key that it sorts by.

use std::borrow::Cow;

use serde::Serialize;

use crate::{
    record::Cost,
    report::{
        matrix::{CellText, Matrix, mark},
        style::Tone,
        text, words,
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
