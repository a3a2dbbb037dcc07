//! Records whose cases span a grid, on several targets: a group for each column of the grid, its rows
//! cheapest first.

use super::Placed;
use crate::{
    experiment::{Grid, Role},
    record::{Across, CaseAcross, CaseRecord, Status},
    report::text,
};

/// Where every case stands; and what no target can run, with the reason that the first of them gives.
pub(super) fn placed<'a>(
    across: &Across<'a>,
    grid: &'a Grid,
) -> (Vec<Placed>, Vec<(String, String)>) {
    let known = |row: &CaseAcross<'a>| -> Option<(&'a str, &'a str)> { grid.place(any(row)?) };
    let mut columns: Vec<&str> = Vec::new();
    let mut here: Vec<(usize, Placed, (usize, f64))> = Vec::new();
    let mut absent: Vec<(&str, &str, String)> = Vec::new();
    for (index, row) in across.rows.iter().enumerate() {
        let Some((name, column)) = known(row).filter(|_| row.role == Role::Case) else {
            let floor = Placed::plain(index, row);
            here.push((usize::MAX, floor, (index, 0.0)));
            continue;
        };
        let place = columns.iter().position(|one| *one == column);
        let place = place.unwrap_or_else(|| {
            columns.push(column);
            columns.len() - 1
        });
        match reason(row) {
            Some(reason) => absent.push((name, column, reason)),
            None => {
                let placed = Placed {
                    index,
                    group: format!("{} {column}", grid.columns),
                    name: text::line(name),
                };
                here.push((place, placed, order(row, across)));
            }
        }
    }
    here.sort_by(|a, b| {
        let costs = a.2.0.cmp(&b.2.0).then(a.2.1.total_cmp(&b.2.1));
        a.0.cmp(&b.0).then(costs)
    });
    // A row of which nothing runs is named once.
    let runs = |name: &str| {
        let rows = here
            .iter()
            .filter_map(|(_, placed, _)| known(&across.rows[placed.index]));
        rows.into_iter().any(|place| place.0 == name)
    };
    let mut lines: Vec<(String, String)> = Vec::new();
    for (name, column, reason) in &absent {
        let told = match runs(name) {
            true => format!("{name}/{column}"),
            false => (*name).to_owned(),
        };
        let told = text::line(&told);
        if !lines.iter().any(|line| line.0 == told) {
            lines.push((told, text::line(reason)));
        }
    }
    (
        here.into_iter().map(|(_, placed, _)| placed).collect(),
        lines,
    )
}

/// The case on the first target that has it.
fn any<'a>(row: &CaseAcross<'a>) -> Option<&'a CaseRecord> {
    row.cells.iter().find_map(|cell| cell.case)
}

/// Why it runs nowhere; `None` where it does, or should.
fn reason(row: &CaseAcross<'_>) -> Option<String> {
    let mut cases = row.cells.iter().filter_map(|cell| cell.case);
    let nowhere = cases.all(|case| case.status == Status::Unsupported);
    let reason = any(row).and_then(|case| case.reason.clone());
    nowhere.then(|| reason.unwrap_or_else(|| "not on these targets".to_owned()))
}

/// What a row sorts by: its cost on the first target that has one, of those that measure like the first.
fn order(row: &CaseAcross<'_>, across: &Across<'_>) -> (usize, f64) {
    let unit = across.columns.first().map(|column| column.record.unit);
    let cost = row
        .cells
        .iter()
        .zip(&across.columns)
        .find_map(|(cell, column)| {
            let record = Some(column.record).filter(|record| Some(record.unit) == unit)?;
            record.cost(cell.case?)
        });
    cost.map_or((1, 0.0), |cost| (0, cost.value))
}
