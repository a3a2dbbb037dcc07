//! Tables of several targets and of comparisons, for a terminal.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width,
};

pub(super) use super::terminal::{caption, warning_lines};
use crate::report::style::{Style, Tone};

/// A column of a table that may come in several blocks.
pub(super) struct Column {
    /// Its heading.
    pub(super) header: String,
    /// Whether it is aligned to the right.
    pub(super) right: bool,
    /// A cell a row.
    pub(super) cells: Vec<(String, Tone)>,
}

impl Column {
    /// What it takes of a line.
    pub(super) fn width(&self) -> usize {
        let cells = self.cells.iter().map(|(text, _)| text.as_str());
        let texts = self.header.lines().chain(cells);
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

/// Columns between them are this far apart.
pub(super) const GAP: usize = 2;

/// Marks a line that becomes a heading; never part of a record's text ([`text::line`]).
const HEADING: char = '\u{E000}';

/// A table with headings between its rows, all in the same columns.
pub(super) struct Grid {
    table: Table,
    style: Style,
    headings: Vec<String>,
}

impl Grid {
    /// An empty table; the columns numbered in `right` are aligned to the right.
    pub(super) fn new(header: &[&str], right: &[usize], style: Style) -> Self {
        let mut table = Table::new();
        table
            .load_style(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(style.width).unwrap_or(u16::MAX));
        if style.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let cell = |text: &&str| match style.colour {
            true => Cell::new(text).add_attribute(Attribute::Dim),
            false => Cell::new(text),
        };
        table.set_header(header.iter().map(cell).collect::<Vec<_>>());
        let last = header.len().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { 2 }));
            if right.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            // Words may wrap; numbers may not.
            if index != last && index > 0 {
                column.set_constraint(ColumnConstraint::ContentWidth);
            } else if index == 0 {
                column.set_constraint(ColumnConstraint::UpperBoundary(Width::Percentage(40)));
            }
        }
        Grid {
            table,
            style,
            headings: Vec::new(),
        }
    }

    /// A line across all columns, before the next row.
    pub(super) fn heading(&mut self, text: &str) {
        self.table
            .add_row(vec![format!("{HEADING}{}", self.headings.len())]);
        self.headings.push(text.to_owned());
    }

    /// One row.
    pub(super) fn row(&mut self, cells: Vec<(String, Tone)>) {
        let style = self.style;
        self.table.add_row(cells.into_iter().map(|(text, tone)| {
            let cell = Cell::new(text);
            match tone.colour().filter(|_| style.colour) {
                Some(colour) => cell.fg(colour),
                None => cell,
            }
        }));
    }

    /// The lines, without spaces at their ends.
    pub(super) fn render(self) -> String {
        let mut headings = self.headings.iter();
        let mut out = String::new();
        for line in self.table.lines() {
            if line.contains(HEADING) {
                let heading = headings.next().map_or("", String::as_str);
                let _ = writeln!(out, "{}", self.style.bold(heading));
            } else {
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
        out
    }
}
