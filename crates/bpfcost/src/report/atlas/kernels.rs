//! A table for each column of the grid: what each way costs on every kernel, and how that changed.

use std::{collections::HashMap, fmt::Write};

use super::{Atlas, notes};
use crate::{
    experiment::Role,
    record::{Record, Verdict},
    report::{
        markdown::{code, escape},
        matrix::{CellText, Group, Matrix, mark},
        target, text,
    },
};

/// How a case changed on a kernel, by the kernel's place and the case's name.
type Changes = HashMap<(usize, String), String>;

impl Atlas<'_> {
    /// The tables; none where there is one kernel.
    pub(super) fn by_kernel(&self, out: &mut String) {
        // The newest first, for rows are sorted by the first target.
        let newest: Vec<&Record> = self.kernels.iter().rev().copied().collect();
        let Some(matrix) = Matrix::new(&newest) else {
            return;
        };
        let changes = changes(&self.kernels);
        for group in &matrix.groups {
            self.table(out, group, &matrix, &changes);
        }
        let caption = format!(
            "In brackets how a cost changed from the kernel before; nothing where it is the same, or where the \
             ranges over loads meet. Sorted by the cost on {}.",
            newest
                .first()
                .map_or_else(String::new, |record| target::label(record))
        );
        notes(out, matrix.notes(true).into_iter().chain([caption]));
    }

    fn table(&self, out: &mut String, group: &Group, matrix: &Matrix<'_>, changes: &Changes) {
        let cases = || group.rows.iter().map(|row| &matrix.across.rows[row.index]);
        let is_floor = cases().any(|case| case.role == Role::Floor);
        let abouts: Vec<String> = cases()
            .map(|case| {
                let mut cases = case.cells.iter().filter_map(|cell| cell.case);
                cases
                    .next()
                    .map_or_else(String::new, |case| text::line(&case.about))
            })
            .collect();
        let alike = abouts.windows(2).all(|pair| pair[0] == pair[1]);
        let title = match abouts.first() {
            Some(about) if alike && !is_floor => format!("{}: {about}", group.name),
            _ => group.name.clone(),
        };
        let _ = writeln!(out, "### {}\n", escape(&title));
        let heads: Vec<String> = self
            .kernels
            .iter()
            .map(|record| escape(&target::label(record)))
            .collect();
        let last = if is_floor { "event" } else { "floor" };
        let _ = writeln!(out, "| insn/op | {} | {last} |", heads.join(" | "));
        let _ = writeln!(out, "|:--|{}:--|", "--:|".repeat(heads.len()));
        for ((row, case), about) in group.rows.iter().zip(cases()).zip(&abouts) {
            let mut line = code(&row.name);
            // The matrix has the newest first.
            for (place, cell) in row.cells.iter().rev().enumerate() {
                let change = changes.get(&(place, case.name.to_owned()));
                let _ = write!(line, " | {}", escape(&value(cell, change)));
            }
            let floor = || {
                let mut cases = case.cells.iter().filter_map(|cell| cell.case);
                let floor = cases.find_map(|case| case.floor.as_deref());
                code(&text::line(floor.unwrap_or_default()))
            };
            let last = if is_floor { escape(about) } else { floor() };
            let _ = writeln!(out, "| {line} | {last} |");
        }
        out.push('\n');
    }
}

fn value(cell: &CellText, change: Option<&String>) -> String {
    let value = match cell.range.as_str() {
        "" => format!("{}{}", cell.value, mark(cell.footnote)),
        range => range.to_owned(),
    };
    match change {
        Some(change) => format!("{value} ({change})"),
        None => value,
    }
}

/// What changed from each kernel to the next.
fn changes(kernels: &[&Record]) -> Changes {
    let mut changes = Changes::new();
    for (before, pair) in kernels.windows(2).enumerate() {
        let Some(matrix) = Matrix::new(pair) else {
            continue;
        };
        for row in matrix.rows() {
            let found = row.cells.get(1).and_then(|cell| cell.difference.as_ref());
            let differs = found.filter(|found| {
                matches!(found.difference.verdict, Verdict::Slower | Verdict::Faster)
            });
            if let Some(found) = differs {
                let name = matrix.across.rows[row.index].name.to_owned();
                changes.insert((before + 1, name), found.relative.clone());
            }
        }
    }
    changes
}
