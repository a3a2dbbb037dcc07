//! The table for a terminal. Columns that do not fit beside each other come below each other.

use std::fmt::Write;

use super::Sheet;
use crate::report::{
    matrix::mark,
    number,
    style::{Style, Tone},
    table::{self, Column, GAP, Grid},
};

/// The table, and what is to know of it; with `verbose`, intervals in full.
pub fn render(sheet: &Sheet<'_>, style: Style, verbose: bool) -> String {
    let mut out = String::new();
    for block in blocks(sheet, style, verbose) {
        let mut header = vec![sheet.corner.as_str()];
        header.extend(block.iter().map(|column| column.header.as_str()));
        let right: Vec<usize> = (1..)
            .zip(&block)
            .filter(|(_, column)| column.right)
            .map(|(place, _)| place)
            .collect();
        let mut grid = Grid::new(&header, &right, style);
        for (place, row) in sheet.rows.iter().enumerate() {
            let cells = block.iter().map(|column| column.cells[place].clone());
            let name = (row.name.clone(), Tone::Plain);
            grid.row(std::iter::once(name).chain(cells).collect());
        }
        out.push_str(&grid.render());
        out.push('\n');
    }
    // What is to know belongs to the table above.
    out.pop();
    for note in sheet.notes() {
        table::caption(&mut out, &note, style);
    }
    for caption in sheet.captions() {
        table::caption(&mut out, &caption, style);
    }
    let _ = writeln!(out);
    out
}

/// The columns of each block.
fn blocks(sheet: &Sheet<'_>, style: Style, verbose: bool) -> Vec<Vec<Column>> {
    let names = sheet.rows.iter().map(|row| row.name.chars().count());
    let name = names.max().unwrap_or(0).max(sheet.corner.chars().count());
    let width =
        |columns: &[Column]| -> usize { columns.iter().map(|column| GAP + column.width()).sum() };
    let mut blocks: Vec<Vec<Column>> = Vec::new();
    let fits = |block: &[Column], own: &[Column]| name + width(block) + width(own) <= style.width;
    for own in (0..sheet.columns.len()).map(|index| columns(sheet, index, verbose)) {
        match blocks.last_mut() {
            Some(block) if fits(block, &own) => block.extend(own),
            _ => blocks.push(own),
        }
    }
    // Floors are worth a column, but not a block of their own.
    if let (Some(floors), Some(block)) = (floors(sheet), blocks.last_mut())
        && fits(block, std::slice::from_ref(&floors))
    {
        block.push(floors);
    }
    blocks
}

/// The floors, where rows have different ones.
fn floors(sheet: &Sheet<'_>) -> Option<Column> {
    sheet.floors_differ().then(|| Column {
        header: "floor".to_owned(),
        right: false,
        cells: sheet
            .rows
            .iter()
            .map(|row| (row.floor.clone(), Tone::Quiet))
            .collect(),
    })
}

/// A column of the sheet: its numbers, and how far they are open.
fn columns(sheet: &Sheet<'_>, index: usize, verbose: bool) -> Vec<Column> {
    let cells = || sheet.rows.iter().map(|row| &row.cells[index]);
    let mut texts: Vec<String> = cells()
        .map(|cell| format!("{}{}", cell.text.value, mark(cell.footnote)))
        .collect();
    number::align(&mut texts, ' ', ' ');
    let values = texts
        .into_iter()
        .zip(cells())
        .map(|(text, cell)| (text, cell.text.tone));
    let spreads = cells().map(|cell| {
        let text = match verbose || sheet.record.unit.is_counted() {
            true => &cell.text.range,
            false => &cell.text.width,
        };
        (text.clone(), Tone::Quiet)
    });
    let mut columns = vec![
        Column {
            header: sheet.columns[index].clone(),
            right: true,
            cells: values.collect(),
        },
        Column {
            header: String::new(),
            right: false,
            cells: spreads.collect(),
        },
    ];
    columns.retain(|column| column.width() > 0);
    columns
}
