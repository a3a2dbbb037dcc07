//! A view as Markdown, as GitHub shows it: for a pull request or an issue.

use std::fmt::Write;

use crate::{
    section::{Section, View},
    table::Table,
};
use bpfcost_text::number::{self, MISSING};

/// The view as Markdown.
pub fn render(view: &View) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "### {}\n", escape(&view.title));
    let _ = writeln!(out, "{}\n", escape(&view.summary));
    sections(&mut out, &view.sections);
    if !view.origin.is_empty() {
        let _ = writeln!(out, "{}", escape(&view.origin));
    }
    number::plain_spaces(&out)
}

/// Sections, one after the other; figures have no place here.
pub fn sections(out: &mut String, sections: &[Section]) {
    for section in sections {
        match section {
            Section::Table(table) => table.markdown(out),
            Section::Prose(prose) => {
                if !prose.title.is_empty() {
                    let _ = writeln!(out, "**{}**\n", escape(&prose.title));
                }
                lines(out, prose.paragraphs.iter());
            }
            Section::Problem(problem) => {
                // Four spaces make a block that no text inside can end.
                let _ = writeln!(out, "    {}", problem.problem);
                for detail in &problem.details {
                    let _ = writeln!(out, "      {detail}");
                }
                out.push('\n');
            }
            Section::Warnings(warnings) => {
                out.push_str("**Warnings**\n\n");
                for warning in &warnings.lines {
                    let _ = writeln!(out, "- {}", escape(warning));
                }
                out.push('\n');
            }
            Section::Figures(_) | Section::Facts(_) => {}
        }
    }
}

/// Lines below each other, and an empty one behind them.
pub(crate) fn lines<'a>(out: &mut String, lines: impl Iterator<Item = &'a String>) {
    let lines: Vec<String> = lines.map(|line| escape(line)).collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "{}\n", lines.join("  \n"));
    }
}

impl Table {
    /// As Markdown: a table for each heading that stands between rows.
    pub fn markdown(&self, out: &mut String) {
        if !self.title.is_empty() {
            let _ = writeln!(out, "**{}**\n", escape(&self.title));
        }
        let columns = self.columns();
        let own: Vec<usize> = columns
            .iter()
            .copied()
            .filter(|at| !self.head[*at].joined)
            .collect();
        for (name, rows) in self.row_groups() {
            let heads = own.iter().map(|at| match (at, name) {
                (0, name) if !name.is_empty() => escape(name),
                (at, _) => escape(&self.head[*at].line()),
            });
            let heads: Vec<String> = heads.collect();
            let _ = writeln!(out, "| {} |", heads.join(" | "));
            let marks = own.iter().map(|at| {
                if self.head[*at].number {
                    "--:|"
                } else {
                    ":--|"
                }
            });
            let _ = writeln!(out, "|{}", marks.collect::<String>());
            for row in rows {
                let mut cells: Vec<String> = Vec::new();
                for (at, cell) in row
                    .iter()
                    .enumerate()
                    .filter(|one| columns.contains(&one.0))
                {
                    match cells.last_mut() {
                        Some(last) if self.head[at].joined => {
                            *last = format!("{last} {}", escape(&cell.text))
                                .trim_end()
                                .to_owned();
                        }
                        Some(_) => cells.push(escape(&cell.text)),
                        None => cells.push(code(&cell.text)),
                    }
                }
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
            out.push('\n');
        }
        let notes = self.notes.iter().map(|note| &note.text);
        lines(out, notes.chain(&self.captions));
    }
}

/// A name in backticks.
pub(crate) fn code(name: &str) -> String {
    let name = name.replace('`', "'").replace('|', "\\|");
    if name.trim().is_empty() {
        MISSING.to_owned()
    } else {
        format!("`{name}`")
    }
}

/// Text in which nothing is Markdown or HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' | '@' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
