//! The matrix as Markdown, for a pull request or an issue; each record in full comes behind it.

use std::fmt::Write;

use super::{CellText, Matrix, changes, mark, sentence};
use crate::report::{
    markdown::{code, escape},
    number,
};

/// The matrix as Markdown.
pub fn render(matrix: &Matrix<'_>) -> String {
    let mut out = String::new();
    let title = format!("{} on {} targets", matrix.experiment, matrix.heads.len());
    let _ = writeln!(out, "### {}\n", escape(&title));
    let _ = writeln!(out, "{}\n", escape(&sentence(matrix)));
    for change in changes(matrix) {
        let _ = writeln!(out, "{}\n", escape(&change));
    }
    out.push_str("| target | kernel | costs are |\n|:--|:--|:--|\n");
    for head in &matrix.heads {
        let cells = [&head.label, &head.kernel, &head.numbers].map(|text| escape(text));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    for group in &matrix.groups {
        let mut header = escape(&group.name);
        let mut rule = String::from("|:--|");
        for head in &matrix.heads {
            let _ = write!(header, " | {}, {}", escape(&head.label), head.unit);
            rule.push_str("--:|");
            if let Some(first) = head.against {
                let _ = write!(header, " | against {}", escape(&matrix.heads[first].label));
                rule.push_str(":--|");
            }
        }
        let _ = writeln!(out, "\n| {header} |\n{rule}");
        for row in &group.rows {
            let mut line = code(&row.name);
            for (cell, head) in row.cells.iter().zip(&matrix.heads) {
                let _ = write!(line, " | {}", escape(&value(cell)));
                if head.against.is_some() {
                    let _ = write!(line, " | {}", escape(&difference(cell)));
                }
            }
            let _ = writeln!(out, "| {line} |");
        }
    }
    let lines: Vec<String> = matrix
        .notes(true)
        .iter()
        .chain(&matrix.captions())
        .map(|line| escape(line))
        .collect();
    let _ = writeln!(out, "\n{}\n", lines.join("  \n"));
    number::plain_spaces(&out)
}

fn value(cell: &CellText) -> String {
    let value = format!("{}{} {}", cell.value, mark(cell.footnote), cell.width);
    value.trim_end().to_owned()
}

fn difference(cell: &CellText) -> String {
    cell.difference.as_ref().map_or_else(String::new, |found| {
        let interval = match found.interval.as_str() {
            "" => String::new(),
            interval => format!(" {interval}"),
        };
        format!("{}{interval}, {}", found.relative, found.verdict)
    })
}
