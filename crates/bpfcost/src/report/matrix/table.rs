//! The matrix for a terminal. What does not fit beside each other comes below each other, each block
//! with the target that its own are compared with.

use std::fmt::Write;

use super::{
    CellText, DifferenceText, Matrix, Row, changes, invalid_lines, mark, sentence, warning_lines,
};
use crate::report::{
    number,
    style::{Style, Tone},
    summary,
    table::{self, Column, GAP, Grid},
    text,
};

/// The matrix as a person reads it on a terminal; with `verbose`, intervals in full.
pub fn render(matrix: &Matrix<'_>, style: Style, verbose: bool) -> String {
    let mut out = String::new();
    let summary = text::wrap(&sentence(matrix), style.width, "");
    let _ = writeln!(out, "{}\n", style.bold(&summary));
    for change in changes(matrix) {
        let _ = writeln!(out, "{}\n", text::wrap(&change, style.width, ""));
    }
    targets(&mut out, matrix, style);
    for block in blocks(matrix, style, verbose) {
        out.push_str(&render_block(matrix, &block, style, verbose));
        out.push('\n');
    }
    // Footnotes and captions belong to the table above.
    out.pop();
    for note in matrix.notes(verbose) {
        table::caption(&mut out, &note, style);
    }
    for caption in matrix.captions() {
        table::caption(&mut out, &caption, style);
    }
    out.push('\n');
    if !verbose {
        without_tables(&mut out, matrix, style);
    }
    number::plain_spaces(&out)
}

/// What the tables of the targets would say, where they don't follow.
fn without_tables(out: &mut String, matrix: &Matrix<'_>, style: Style) {
    for (problem, details) in invalid_lines(matrix) {
        let _ = writeln!(out, "{}", style.alarm(&problem));
        for detail in details {
            let _ = writeln!(out, "  {detail}");
        }
        out.push('\n');
    }
    for column in &matrix.across.columns {
        let words = text::wrap(
            &summary::sentence(column.record),
            style.width.saturating_sub(2),
            "",
        );
        let _ = writeln!(out, "{}", words.replace('\n', "\n  "));
    }
    let more = match matrix.shown(false).len() < matrix.groups.len() {
        true => "Everything else, each target's own tables too",
        false => "Each target's own table, with net and the comparisons within it",
    };
    let more = format!("{more}: --verbose, or `bpfcost report` of the records.");
    table::caption(out, &more, style);
    table::warning_lines(out, &warning_lines(matrix), style);
}

/// What each target is.
fn targets(out: &mut String, matrix: &Matrix<'_>, style: Style) {
    let mut grid = Grid::new(&["target", "kernel", "costs are"], &[], style);
    for head in &matrix.heads {
        let cells = [&head.label, &head.kernel, &head.numbers];
        grid.row(cells.map(|cell| (cell.clone(), Tone::Plain)).to_vec());
    }
    let _ = writeln!(out, "{}", grid.render());
}

/// The columns of each block.
fn blocks(matrix: &Matrix<'_>, style: Style, verbose: bool) -> Vec<Vec<Column>> {
    let names = shown(matrix, verbose).map(|row| row.name.chars().count() + 2);
    let name = names.max().unwrap_or(0).max(4).min(style.width * 2 / 5);
    let width = |columns: &[Column]| -> usize {
        name + columns
            .iter()
            .map(|column| GAP + column.width())
            .sum::<usize>()
    };
    let mut blocks: Vec<Vec<Column>> = Vec::new();
    for (index, head) in matrix.heads.iter().enumerate() {
        let own = columns(matrix, index, verbose, true);
        if let Some(block) = blocks.last_mut()
            && width(block) + width(&own) - name <= style.width
        {
            block.extend(own);
            continue;
        }
        // What it is compared with stands before it again.
        let first = head.against.into_iter();
        let mut block: Vec<Column> = first
            .flat_map(|first| columns(matrix, first, verbose, false))
            .collect();
        block.extend(own);
        blocks.push(block);
    }
    blocks
}

/// The columns of one target; without `differences` its costs alone.
fn columns(matrix: &Matrix<'_>, index: usize, verbose: bool, differences: bool) -> Vec<Column> {
    let head = &matrix.heads[index];
    let column = |header: String, right: bool, cell: &dyn Fn(&CellText) -> (String, Tone)| Column {
        header,
        right,
        cells: shown(matrix, verbose)
            .map(|row| cell(&row.cells[index]))
            .collect(),
    };
    let mut values = column(format!("{}\n{}", head.label, head.unit), true, &|cell| {
        (format!("{}{}", cell.value, mark(cell.footnote)), cell.tone)
    });
    let mut texts: Vec<String> = values.cells.iter().map(|cell| cell.0.clone()).collect();
    number::align(&mut texts, ' ', ' ');
    for (cell, text) in values.cells.iter_mut().zip(texts) {
        cell.0 = text;
    }
    let mut columns = vec![values];
    if differences {
        columns.push(column(String::new(), false, &|cell| {
            let text = if verbose { &cell.range } else { &cell.width };
            (text.clone(), Tone::Quiet)
        }));
    }
    if let Some(first) = head.against.filter(|_| differences) {
        let of = |show: &dyn Fn(&DifferenceText) -> (String, Tone), cell: &CellText| {
            cell.difference.as_ref().map(show).unwrap_or_default()
        };
        let against = format!("against\n{}", matrix.heads[first].label);
        columns.push(column(against, true, &|cell| {
            of(&|found| (found.relative.clone(), Tone::Plain), cell)
        }));
        columns.push(column(String::new(), false, &|cell| {
            of(&|found| (found.interval.clone(), Tone::Plain), cell)
        }));
        columns.push(column(String::new(), false, &|cell| {
            of(&|found| (found.verdict.to_owned(), found.tone), cell)
        }));
    }
    // Counts have no intervals; a column of nothing is none.
    columns.retain(|column| column.width() > 0);
    columns
}

/// The rows that are shown.
fn shown<'a>(matrix: &'a Matrix<'_>, verbose: bool) -> impl Iterator<Item = &'a Row> {
    matrix.shown(verbose).iter().flat_map(|group| &group.rows)
}

fn render_block(matrix: &Matrix<'_>, columns: &[Column], style: Style, verbose: bool) -> String {
    let mut header = vec!["case"];
    header.extend(columns.iter().map(|column| column.header.as_str()));
    let right: Vec<usize> = (1..)
        .zip(columns)
        .filter(|(_, column)| column.right)
        .map(|(place, _)| place)
        .collect();
    let mut grid = Grid::new(&header, &right, style);
    let mut place = 0;
    for group in matrix.shown(verbose) {
        grid.heading(&group.name);
        for row in &group.rows {
            let cells = columns.iter().map(|column| column.cells[place].clone());
            let name = (format!("  {}", row.name), Tone::Plain);
            grid.row(std::iter::once(name).chain(cells).collect());
            place += 1;
        }
    }
    grid.render()
}
