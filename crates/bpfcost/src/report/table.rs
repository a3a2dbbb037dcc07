//! The human table: a sentence first, then what each case costs, then what differs from what.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width,
};

use crate::{
    record::{Record, Status},
    report::{
        block::Block,
        cpus, number, parts,
        rows::{self, Group, PairRow},
        scaling::Chart,
        sheet::{self, Sheet},
        style::{Style, Tone},
        summary, text, warnings, words,
        workload::Overhead,
    },
};

/// Where the rest is, of a record that one table shows.
const EVERY_CASE: &str = "Every case as measured, floors included, and what differs from what: --verbose, or `bpfcost report`.";
/// The same of calls that several probes counted.
const EVERY_CALL: &str = "The most frequent calls, by probe: --verbose, or `bpfcost report`.";

/// The record as a person reads it on a terminal.
pub fn render(record: &Record, style: Style) -> String {
    let mut out = String::new();
    sentence(&mut out, record, style);
    match (Sheet::new(record), Chart::new(record)) {
        _ if record.layout.workload().is_some() => workload(&mut out, record, false, style),
        (Some(sheet), _) => {
            out.push_str(&sheet::table(&sheet, style, false));
            caption(&mut out, EVERY_CASE, style);
            out.push('\n');
        }
        (None, Some(chart)) => {
            blocks(&mut out, &chart.blocks(false), style);
            comparisons(&mut out, &chart.other_pairs(), record, style);
            blocks(&mut out, &chart.predicted(false), style);
            for words in chart.others_told() {
                caption(&mut out, &words, style);
            }
            caption(&mut out, EVERY_CASE, style);
            out.push('\n');
        }
        (None, None) => {
            costs(&mut out, &rows::groups(record), record, style);
            several_cpus(&mut out, record, style);
            comparisons(&mut out, &rows::pairs(record), record, style);
        }
    }
    blocks(&mut out, &parts::blocks(record), style);
    invalid(&mut out, record, style);
    warning_lines(&mut out, &warnings::lines(record), style);
    number::plain_spaces(&out)
}

/// What probes cost a workload; every state, and where CPU times come from, where `all` is wanted.
pub(super) fn workload(out: &mut String, record: &Record, all: bool, style: Style) {
    if let Some(overhead) = Overhead::new(record) {
        blocks(out, &overhead.blocks(all), style);
        if all {
            blocks(out, &overhead.details(), style);
        }
        let calls = overhead.calls();
        match calls.len() {
            1 => blocks(out, &calls, style),
            _ if all => blocks(out, &calls, style),
            0 => {}
            _ => {
                caption(out, EVERY_CALL, style);
                out.push('\n');
            }
        }
    }
}

/// The summary, wrapped.
pub(super) fn sentence(out: &mut String, record: &Record, style: Style) {
    let sentence = text::wrap(&summary::sentence(record), style.width, "");
    let _ = writeln!(out, "{}\n", style.bold(&sentence));
}

/// The table of costs, by group.
pub(super) fn costs(out: &mut String, groups: &[Group<'_>], record: &Record, style: Style) {
    if groups.is_empty() {
        return;
    }
    let mut costs: Vec<String> = groups
        .iter()
        .flat_map(|group| group.rows.iter().map(|row| row.cost.clone()))
        .collect();
    number::align(&mut costs, ' ', ' ');
    let mut costs = costs.into_iter();
    let unit = record.unit.to_string();
    let spread = words::spread_heading(record.unit);
    let header = ["case", unit.as_str(), spread, "net", "note"];
    let mut grid = Grid::new(&header, &[1], style);
    for group in groups {
        grid.heading(&group.name);
        for row in &group.rows {
            let note = match row.tone {
                // Its block below says the rest.
                Tone::Alarm => "see below".to_owned(),
                _ => row.note(),
            };
            let note_tone = row.notes.first().map_or(Tone::Plain, |note| note.tone);
            grid.row(vec![
                (format!("  {}", row.name), row.tone),
                (costs.next().unwrap_or_default(), row.tone),
                (row.interval.clone(), Tone::Plain),
                (row.net.clone(), Tone::Plain),
                (note, note_tone),
            ]);
        }
    }
    out.push_str(&grid.render());
    for words in words::captions(record) {
        caption(out, &words, style);
    }
    if let Some(memory) = words::memory_caption(record) {
        caption(out, &memory, style);
    }
    out.push('\n');
}

/// What each CPU did, where there were several.
pub(super) fn several_cpus(out: &mut String, record: &Record, style: Style) {
    let rows = cpus::rows(record);
    if rows.is_empty() {
        return;
    }
    let columns = cpus::columns(record);
    let head = format!("{} on each CPU", record.unit);
    let mut header = vec![head.as_str()];
    header.extend(columns.iter().map(String::as_str));
    let numbers: Vec<usize> = (1..header.len()).collect();
    let mut grid = Grid::new(&header, &numbers, style);
    for row in rows {
        let cells = row.cells().into_iter().map(|(text, _)| text);
        grid.row(
            std::iter::once(row.name)
                .chain(cells)
                .map(|cell| (cell, Tone::Plain))
                .collect(),
        );
    }
    out.push_str(&grid.render());
    caption(out, cpus::CAPTION, style);
    out.push('\n');
}

/// Small tables, where there are any.
pub(super) fn blocks(out: &mut String, blocks: &[Block], style: Style) {
    for block in blocks {
        block.terminal(out, style);
    }
}

/// The comparisons, where there are any.
pub(super) fn comparisons(out: &mut String, pairs: &[PairRow<'_>], record: &Record, style: Style) {
    if pairs.is_empty() {
        return;
    }
    let mut differences: Vec<String> = pairs.iter().map(|pair| pair.difference.clone()).collect();
    number::align(&mut differences, ' ', ' ');
    let difference = record.unit.to_string();
    let header = [
        "case",
        "against",
        &difference,
        words::relative_heading(record.unit),
        "",
        "verdict",
    ];
    let mut grid = Grid::new(&header, &[2, 3], style);
    for (pair, difference) in pairs.iter().zip(differences) {
        grid.row(vec![
            (pair.case.clone(), Tone::Plain),
            (pair.baseline.clone(), Tone::Plain),
            (difference, Tone::Plain),
            (pair.relative.clone(), Tone::Plain),
            (pair.interval.clone(), Tone::Plain),
            (pair.verdict.clone(), pair.tone),
        ]);
    }
    out.push_str(&grid.render());
    caption(out, &words::pair_caption(record), style);
    out.push('\n');
}

/// The blocks of invalid cases: the problem, and the detail as it was recorded.
pub(super) fn invalid(out: &mut String, record: &Record, style: Style) {
    let cases = record
        .cases
        .iter()
        .filter(|case| case.status == Status::Invalid);
    for case in cases {
        for (problem, details) in words::invalid_lines(case, record) {
            let _ = writeln!(out, "{}", style.alarm(&problem));
            for detail in details {
                // A hex diff must stay in its columns, so nothing is wrapped here.
                let _ = writeln!(out, "  {detail}");
            }
        }
        out.push('\n');
    }
}

/// Warnings, each from the start of a line.
pub(super) fn warning_lines(out: &mut String, warnings: &[String], style: Style) {
    for warning in warnings {
        let words = format!("warning: {warning}");
        let words = text::wrap(&words, style.width.saturating_sub(2), "");
        let _ = writeln!(out, "{}", style.caution(&words.replace('\n', "\n  ")));
    }
}

/// A quiet line below a table.
pub(super) fn caption(out: &mut String, words: &str, style: Style) {
    let _ = writeln!(out, "{}", style.dim(&text::wrap(words, style.width, "")));
}

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
