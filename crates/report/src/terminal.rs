//! A view for a terminal.

use std::fmt::Write;

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table as TextTable, Width,
};

use crate::{
    section::{Section, View, Warnings},
    style::{Style, Tone},
    table::{self, Table},
};
use bpfcost_text::{
    number::{self, plural},
    wrap,
};

/// The view as a person reads it on a terminal.
pub fn render(view: &View, style: Style) -> String {
    let mut out = String::new();
    let summary = wrap(&view.summary, style.width, "");
    let summary = match view.tone {
        Tone::Alarm => style.alarm(&summary),
        _ => style.bold(&summary),
    };
    let _ = writeln!(out, "{summary}\n");
    sections(&mut out, &view.sections, style);
    number::plain_spaces(&out)
}

/// Sections, one after the other; figures have no place here.
pub fn sections(out: &mut String, sections: &[Section], style: Style) {
    for section in sections {
        match section {
            Section::Table(table) => table.terminal(out, style),
            Section::Prose(prose) => {
                if !prose.title.is_empty() {
                    let _ = writeln!(out, "{}", style.bold(&prose.title));
                }
                for words in &prose.paragraphs {
                    caption(out, words, style);
                }
                out.push('\n');
            }
            Section::Problem(problem) => {
                let _ = writeln!(out, "{}", style.alarm(&problem.problem));
                for detail in &problem.details {
                    // A hex diff must stay in its columns, so nothing is wrapped here.
                    let _ = writeln!(out, "  {detail}");
                }
                out.push('\n');
            }
            Section::Warnings(warnings) => warning_lines(out, warnings, style),
            Section::Figures(_) | Section::Facts(_) => {}
        }
    }
}

/// Warnings, each from the start of a line.
pub(crate) fn warning_lines(out: &mut String, warnings: &Warnings, style: Style) {
    for warning in &warnings.lines {
        let words = format!("warning: {warning}");
        let words = wrap(&words, style.width.saturating_sub(2), "");
        let _ = writeln!(out, "{}", style.caution(&words.replace('\n', "\n  ")));
    }
    if warnings.more > 0 {
        let more = plural(warnings.more, "more note");
        let more = format!("{more}, and all cases and columns: --verbose");
        let _ = writeln!(out, "{}", style.dim(&more));
    }
}

pub(crate) fn caption(out: &mut String, words: &str, style: Style) {
    let _ = writeln!(out, "{}", style.dim(&wrap(words, style.width, "")));
}

/// Columns between them are this far apart.
const GAP: usize = 2;
/// The last column, of sentences, is never narrower, however long the names are.
const NARROWEST: u16 = 16;
/// Marks a line that becomes a heading; never part of a record's text ([`bpfcost_text::line`]).
const HEADING: char = '\u{E000}';

impl Table {
    /// For a terminal.
    pub fn terminal(&self, out: &mut String, style: Style) {
        if !self.title.is_empty() {
            let title = wrap(&self.title, style.width, "");
            let _ = writeln!(out, "{}", style.bold(&title));
        }
        for (place, columns) in self.beside(style.table_width).iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            out.push_str(&self.grid(columns, style));
        }
        for note in &self.notes {
            let text = wrap(&note.text, style.width, "  ");
            let text = match note.tone {
                Tone::Open | Tone::Alarm => style.caution(&text),
                _ => text,
            };
            let _ = writeln!(out, "{text}");
        }
        for words in &self.captions {
            caption(out, words, style);
        }
        out.push('\n');
    }

    /// The texts of a column, decimal points below each other where all are plain numbers.
    fn texts(&self, at: usize) -> Vec<String> {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let mut texts: Vec<String> = cells.map(|cell| cell.text.clone()).collect();
        let is_digit = |last: char| last.is_ascii_digit();
        let plain =
            |text: &String| !text.ends_with(is_digit) || !text.contains(char::is_whitespace);
        if self.head[at].number && texts.iter().all(plain) {
            number::align(&mut texts, ' ', ' ');
        }
        if at == 0 && !self.groups.is_empty() {
            texts.iter_mut().for_each(|text| text.insert_str(0, "  "));
        }
        texts
    }

    fn grid(&self, columns: &[usize], style: Style) -> String {
        let mut table = empty(
            &columns.iter().map(|at| &self.head[*at]).collect::<Vec<_>>(),
            style,
        );
        let mut texts: Vec<_> = columns
            .iter()
            .map(|at| self.texts(*at).into_iter())
            .collect();
        let groups = self.row_groups();
        for (place, (name, rows)) in groups.iter().enumerate() {
            if !name.is_empty() {
                table.add_row(vec![format!("{HEADING}{place}")]);
            }
            for row in *rows {
                let cells = texts.iter_mut().zip(columns).map(|(texts, at)| {
                    let cell = Cell::new(texts.next().unwrap_or_default());
                    let tone = row.get(*at).map_or(Tone::Plain, |cell| cell.tone);
                    match tone.colour().filter(|_| style.colour) {
                        Some(colour) => cell.fg(colour),
                        None => cell,
                    }
                });
                table.add_row(cells);
            }
        }
        let mut headings = groups.iter().filter(|group| !group.0.is_empty());
        let mut out = String::new();
        // Headings without words take no line.
        for line in table.lines().filter(|line| !line.trim().is_empty()) {
            let _ = if line.contains(HEADING) {
                writeln!(
                    out,
                    "{}",
                    style.bold(headings.next().map_or("", |one| one.0))
                )
            } else {
                writeln!(out, "{}", line.trim_end())
            };
        }
        out
    }

    /// The columns that stand beside each other: all of them, unless they are numbers that have no room.
    /// Names stand before each part.
    fn beside(&self, room: usize) -> Vec<Vec<usize>> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let mut units: Vec<Vec<usize>> = Vec::new();
        for at in self.columns() {
            match units.last_mut() {
                Some(unit) if self.head[at].joined || self.head[at].adjacent => unit.push(at),
                _ => units.push(vec![at]),
            }
        }
        let names = units.remove(0);
        let width = |unit: &[usize]| -> usize { unit.iter().map(|at| GAP + self.width(*at)).sum() };
        let start = width(&names) - GAP;
        let numbers = units.iter().all(|unit| self.head[unit[0]].number);
        let mut parts = vec![names.clone()];
        let mut used = start;
        for unit in units {
            let own = width(&unit);
            if numbers
                && used + own > room
                && parts.last().is_some_and(|part| part.len() > names.len())
            {
                parts.push(names.clone());
                used = start;
            }
            used += own;
            parts.last_mut().unwrap_or(&mut Vec::new()).extend(unit);
        }
        parts
    }

    /// Width of a column in characters.
    fn width(&self, at: usize) -> usize {
        let head = if self.head[at].joined {
            ""
        } else {
            self.head[at].text.as_str()
        };
        let texts = self.texts(at);
        let texts = head.lines().chain(texts.iter().map(String::as_str));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

fn empty(head: &[&table::Head], style: Style) -> TextTable {
    let mut table = TextTable::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(style.table_width).unwrap_or(u16::MAX));
    if style.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let heading = |head: &&table::Head| {
        let cell = Cell::new(if head.joined { "" } else { &head.text });
        if style.colour {
            cell.add_attribute(Attribute::Dim)
        } else {
            cell
        }
    };
    table.set_header(head.iter().map(heading));
    let last = head.len().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if index == last { 0 } else { 2 }));
        if head[index].number {
            column.set_cell_alignment(CellAlignment::Right);
        }
        // Sentences may wrap; names and numbers may not.
        column.set_constraint(if index != last || head[index].number {
            ColumnConstraint::ContentWidth
        } else {
            ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST))
        });
    }
    table
}
