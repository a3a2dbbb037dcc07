//! The order of cases on several targets: as they come, or, if they span a grid, a group per column with the
//! cheapest row first.

use super::{RowPosition, apart};
use bpfcost_model::{Grid, Role};
use bpfcost_record::{CaseRecord, CrossTarget, CrossTargetRow, Status};

/// Where every case stands; and what no target can run, of a grid, with the reason that the first of them gives.
pub(crate) fn placed(
    cross_target: &CrossTarget<'_>,
    grid: Option<&Grid>,
) -> (Vec<RowPosition>, Vec<(String, String)>) {
    let grid_place = |row: &CrossTargetRow<'_>| -> Option<(String, String)> {
        let place = any(row)?.cell(grid?).filter(|_| row.role == Role::Case);
        place.map(|(name, column)| (name.to_owned(), column.to_owned()))
    };
    let mut columns: Vec<String> = Vec::new();
    let mut here: Vec<(RowPosition, (usize, f64))> = Vec::new();
    let mut absent: Vec<(String, String, String)> = Vec::new();
    for (index, row) in cross_target.rows.iter().enumerate() {
        let Some((name, column)) = grid_place(row) else {
            let (group, name) = (row.group.to_owned(), bpfcost_text::line(row.name));
            let last = usize::MAX - usize::from(!apart(cross_target, index));
            here.push((RowPosition { index, group, name }, (last, 0.0)));
            continue;
        };
        if let Some(reason) = reason(row) {
            absent.push((name, column, reason));
            continue;
        }
        let place = columns
            .iter()
            .position(|one| *one == column)
            .unwrap_or(columns.len());
        if place == columns.len() {
            columns.push(column.clone());
        }
        let group = grid.map_or_else(String::new, |grid| format!("{} {column}", grid.columns));
        let name = bpfcost_text::line(&name);
        let cost = cost(row, cross_target).unwrap_or(f64::INFINITY);
        here.push((RowPosition { index, group, name }, (place, cost)));
    }
    here.sort_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let here: Vec<RowPosition> = here.into_iter().map(|one| one.0).collect();
    // A row of which nothing runs is named once.
    let mut lines: Vec<(String, String)> = Vec::new();
    for (name, column, reason) in &absent {
        let runs = |placed: &RowPosition| {
            grid_place(&cross_target.rows[placed.index]).is_some_and(|one| one.0 == *name)
        };
        let label = bpfcost_text::line(&if here.iter().any(runs) {
            format!("{name}/{column}")
        } else {
            name.clone()
        });
        if !lines.iter().any(|line| line.0 == label) {
            lines.push((label, bpfcost_text::line(reason)));
        }
    }
    (here, lines)
}

/// The case on the first target that has it.
fn any<'row>(row: &'row CrossTargetRow<'_>) -> Option<&'row CaseRecord> {
    row.cells.iter().find_map(|cell| cell.case.as_deref())
}

/// Why it runs nowhere; `None` where it does, or should.
fn reason(row: &CrossTargetRow<'_>) -> Option<String> {
    let mut cases = row.cells.iter().filter_map(|cell| cell.case.as_deref());
    let nowhere = cases.all(|case| case.status == Status::Unsupported);
    let reason = any(row).and_then(|case| case.reason.clone());
    nowhere.then(|| reason.unwrap_or_else(|| "not on these targets".to_owned()))
}

/// What a row sorts by: its cost on the first target that has one, of those that measure like the first.
fn cost(row: &CrossTargetRow<'_>, cross_target: &CrossTarget<'_>) -> Option<f64> {
    let unit = cross_target.columns.first()?.record.unit;
    let mut cells = row.cells.iter().zip(&cross_target.columns);
    cells.find_map(|(cell, column)| {
        let cost = column.record.cost(cell.case.as_deref()?)?;
        (column.record.unit == unit).then_some(cost.value)
    })
}
