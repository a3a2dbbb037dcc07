//! What the page shows of a record whose cases span a grid: all cells at one look, then in numbers.

use serde::Serialize;

use super::tables::{Row, Table, columns, number_cell, words_cell};
use crate::report::{
    figure,
    matrix::mark,
    sheet::{Cell, Sheet},
    style::Tone,
    words,
};

/// The cells of a grid.
#[derive(Serialize)]
pub(super) struct SheetPart {
    figure: String,
    caption: String,
    notes: Vec<String>,
}

impl SheetPart {
    /// What stands in place of a figure for each group.
    pub(super) fn new(sheet: &Sheet<'_>) -> Self {
        SheetPart {
            figure: figure::sheet::render(sheet),
            caption: sheet.caption(),
            notes: sheet.notes().into_iter().chain(sheet.ways_out()).collect(),
        }
    }
}

/// All cells in numbers.
pub(super) fn table(sheet: &Sheet<'_>) -> Table {
    let spread = words::spread_heading(sheet.record.unit);
    let mut names = vec![("", false)];
    for column in &sheet.columns {
        names.push((column.as_str(), true));
        names.push((spread, true));
    }
    names.push(("floor", false));
    names[0].0 = &sheet.corner;
    let rows = sheet.rows.iter().map(|row| {
        let mut cells = vec![words_cell(row.name.clone())];
        cells.extend(row.cells.iter().flat_map(numbers));
        cells.push(words_cell(row.floor.clone()));
        Row { tone: None, cells }
    });
    Table {
        title: "All cells".into(),
        caption: sheet.caption(),
        rows: rows.collect(),
        columns: columns(&names),
    }
}

fn numbers(cell: &Cell<'_>) -> [super::tables::Cell; 2] {
    let value = format!("{}{}", cell.text.value, mark(cell.footnote));
    let class = match cell.text.tone {
        Tone::Alarm => "n alarm",
        _ => "n",
    };
    let low = cell.cost.and_then(|cost| Some(cost.ends?[0]));
    [
        super::tables::Cell {
            class,
            ..number_cell(value, cell.cost.map(|cost| cost.value))
        },
        number_cell(cell.text.range.clone(), low),
    ]
}
