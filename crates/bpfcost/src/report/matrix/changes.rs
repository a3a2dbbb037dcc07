//! What got dearer and cheaper from one target to the other, by name.

use super::{Head, Matrix};
use crate::{
    experiment::Grid,
    record::{Difference, Verdict},
    report::{number, text},
};

/// Changes beyond this share are named.
const NAMED: f64 = 0.10;
/// So many rows of one column that change alike are told together.
const TOGETHER: usize = 4;

/// A sentence for each target that is compared, where cases span a grid.
pub fn changes(matrix: &Matrix<'_>) -> Vec<String> {
    let Some(grid) = &matrix.grid else {
        return Vec::new();
    };
    let heads = matrix.heads.iter().enumerate();
    heads
        .filter_map(|(column, head)| {
            let first = &matrix.heads[head.against?];
            Some(sentence(head, first, &found(matrix, grid, column)))
        })
        .collect()
}

/// How a cell of the grid differs.
struct Found<'a> {
    row: &'a str,
    column: &'a str,
    difference: Difference,
}

impl Found<'_> {
    fn is_large(&self) -> bool {
        let differs = matches!(self.difference.verdict, Verdict::Slower | Verdict::Faster);
        differs && self.difference.relative.abs() > NAMED
    }
}

/// How each cell of the grid differs on a target, in the order of the view.
fn found<'a>(matrix: &'a Matrix<'_>, grid: &'a Grid, column: usize) -> Vec<Found<'a>> {
    let rows = matrix.rows().map(|row| &matrix.across.rows[row.index]);
    let found = rows.filter_map(|row| {
        let cell = row.cells.get(column)?;
        let (row, column) = grid.place(cell.case?)?;
        Some(Found {
            row,
            column,
            difference: cell.difference?,
        })
    });
    found.collect()
}

fn sentence(head: &Head, first: &Head, found: &[Found<'_>]) -> String {
    let start = format!("{} against {}", head.label, first.label);
    let over = number::round_percent(NAMED);
    if found.is_empty() {
        return format!("{start}: nothing to compare.");
    }
    let parts: Vec<String> = [("dearer", Verdict::Slower), ("cheaper", Verdict::Faster)]
        .into_iter()
        .filter_map(|(word, verdict)| {
            let names = named(found, verdict);
            (!names.is_empty()).then(|| format!("{word} by over {over}: {}", names.join(", ")))
        })
        .collect();
    match parts.is_empty() {
        true => format!("{start}: nothing got dearer or cheaper by over {over}."),
        false => format!("{start}: {}.", parts.join("; ")),
    }
}

/// Names with percentages, largest first: rows by their first column, and other columns of the rows whose
/// first did not change.
fn named(found: &[Found<'_>], verdict: Verdict) -> Vec<String> {
    let large = |one: &&Found<'_>| one.is_large() && one.difference.verdict == verdict;
    let Some(first) = found.first().map(|one| one.column) else {
        return Vec::new();
    };
    let mut rows: Vec<&Found<'_>> = found
        .iter()
        .filter(|one| one.column == first)
        .filter(large)
        .collect();
    sort(&mut rows);
    let told = |one: &&Found<'_>, name: String| format!("{} ({})", text::line(&name), percent(one));
    let mut names: Vec<String> = rows
        .iter()
        .map(|one| told(one, one.row.to_owned()))
        .collect();
    let changed = |row: &str| {
        let mut firsts = found
            .iter()
            .filter(|one| one.column == first && one.row == row);
        firsts.any(Found::is_large)
    };
    let mut columns: Vec<&str> = Vec::new();
    for one in found.iter().filter(|one| one.column != first) {
        if !columns.contains(&one.column) {
            columns.push(one.column);
        }
    }
    for column in columns {
        let own = found
            .iter()
            .filter(|one| one.column == column && !changed(one.row));
        let mut own: Vec<&Found<'_>> = own.filter(large).collect();
        sort(&mut own);
        match own.as_slice() {
            [most, .., least] if own.len() >= TOGETHER => names.push(format!(
                "{} others with {} ({} to {})",
                own.len(),
                text::line(column),
                percent(least),
                percent(most)
            )),
            own => names.extend(
                own.iter()
                    .map(|one| told(one, format!("{}/{}", one.row, one.column))),
            ),
        }
    }
    names
}

/// Largest first.
fn sort(found: &mut [&Found<'_>]) {
    let size = |one: &Found<'_>| one.difference.relative.abs();
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
}

/// `+23 %`.
fn percent(found: &Found<'_>) -> String {
    let percent = number::signed(found.difference.relative * 100.0, 0);
    format!("{percent}{}%", number::HOLD)
}
