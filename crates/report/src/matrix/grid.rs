//! Order of cases on several targets: unchanged, or, if they span a grid, a group per column with the cheapest row
//! first.

use super::{RowPosition, is_apart};
use bpfcost_model::{Grid, Role};
use bpfcost_record::{CaseRecord, CrossTargetColumn, CrossTargetRow, Status};
use bpfcost_text::line;

/// Returns the position of every case; and the cases of a grid that no target can run, with the reason of the first
/// target.
pub(crate) fn positions<'a>(
    targets: &[CrossTargetColumn<'_>],
    rows: Vec<CrossTargetRow<'a>>,
    grid: Option<&Grid>,
) -> (Vec<RowPosition<'a>>, Vec<(String, String)>) {
    let mut columns: Vec<String> = Vec::new();
    let mut here: Vec<(RowPosition<'a>, (usize, f64))> = Vec::new();
    let mut absent: Vec<(String, String, String)> = Vec::new();
    for row in rows {
        let Some((name, column)) = grid_place(&row, grid) else {
            let (group, name) = (row.group.to_owned(), line(row.name));
            let last = usize::MAX - usize::from(!is_apart(&row, targets));
            here.push((RowPosition { row, group, name }, (last, 0.0)));
            continue;
        };
        if let Some(reason) = reason(&row) {
            absent.push((name, column, reason));
            continue;
        }
        let place = columns.iter().position(|one| *one == column);
        let place = place.unwrap_or_else(|| {
            columns.push(column.clone());
            columns.len() - 1
        });
        let group = grid.map_or_else(String::new, |grid| format!("{} {column}", grid.columns));
        let name = line(&name);
        let cost = cost(&row, targets).unwrap_or(f64::INFINITY);
        here.push((RowPosition { row, group, name }, (place, cost)));
    }
    here.sort_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let here: Vec<RowPosition<'a>> = here.into_iter().map(|one| one.0).collect();
    // A row of which nothing runs is named once.
    let mut lines: Vec<(String, String)> = Vec::new();
    for (name, column, reason) in &absent {
        let runs = |position: &RowPosition<'_>| {
            grid_place(&position.row, grid).is_some_and(|place| place.0 == *name)
        };
        let label = line(&if here.iter().any(runs) {
            format!("{name}/{column}")
        } else {
            name.clone()
        });
        if !lines.iter().any(|one| one.0 == label) {
            lines.push((label, line(reason)));
        }
    }
    (here, lines)
}

/// Row and column of a case in the grid; `None` for floors and without a grid.
fn grid_place(row: &CrossTargetRow<'_>, grid: Option<&Grid>) -> Option<(String, String)> {
    let place = first(row)?.cell(grid?).filter(|_| row.role == Role::Case);
    place.map(|(name, column)| (name.to_owned(), column.to_owned()))
}

/// The case on the first target that has it.
fn first<'row>(row: &'row CrossTargetRow<'_>) -> Option<&'row CaseRecord> {
    row.cells.iter().find_map(|cell| cell.case.as_deref())
}

/// The reason that a case runs nowhere; `None` if it runs, or should run, on a target.
fn reason(row: &CrossTargetRow<'_>) -> Option<String> {
    let mut cases = row.cells.iter().filter_map(|cell| cell.case.as_deref());
    let nowhere = cases.all(|case| case.status == Status::Unsupported);
    let reason = first(row).and_then(|case| case.reason.clone());
    nowhere.then(|| reason.unwrap_or_else(|| "not on these targets".to_owned()))
}

/// Cost on the first target that has one, of those that measure like the first: the key by which rows are sorted.
fn cost(row: &CrossTargetRow<'_>, columns: &[CrossTargetColumn<'_>]) -> Option<f64> {
    let unit = columns.first()?.record.unit;
    let mut cells = row.cells.iter().zip(columns);
    cells.find_map(|(cell, column)| {
        let cost = column.record.cost(cell.case.as_deref()?)?;
        (column.record.unit == unit).then_some(cost.value)
    })
}
