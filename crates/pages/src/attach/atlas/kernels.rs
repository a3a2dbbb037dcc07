//! A table per body: the cost of each way to attach on every kernel, and the change from the kernel before.

use std::collections::HashMap;

use super::Atlas;
use bpfcost_model::Role;
use bpfcost_record::{Record, VerdictRecord};
use bpfcost_report::{
    case_table::CellRow,
    matrix::{self, Matrix},
    rows::RowGroup,
    table::{Cell, Head, Table},
    target,
    view::grid::note_caption,
};

/// Relative change of a case from the previous kernel, by the kernel's index and the case's name.
type KernelChanges = HashMap<(usize, String), String>;

impl Atlas<'_> {
    /// The tables; none where there is one kernel.
    pub(super) fn by_kernel(&self) -> Vec<Table> {
        // The newest first, for rows are sorted by the first target.
        let newest: Vec<&Record> = self.kernels.iter().rev().copied().collect();
        let Some(matrix) = Matrix::new(&newest) else {
            return Vec::new();
        };
        let changes = changes(&self.kernels);
        let groups = matrix.table.groups.iter();
        let mut tables: Vec<Table> = groups.map(|group| self.table(group, &changes)).collect();
        if let Some(last) = tables.last_mut() {
            last.captions = matrix.notes(true);
            let grid = matrix.grid.as_ref().filter(|_| matrix.table.has_remarks());
            last.captions.extend(grid.map(note_caption));
            last.captions.push(format!(
                "In brackets: the change from the previous kernel; empty where it is the same, or where the ranges \
                 over loads overlap. Sorted by the cost on {}.",
                target::label(newest[0])
            ));
        }
        tables
    }

    fn table(&self, group: &RowGroup<CellRow<'_>>, changes: &KernelChanges) -> Table {
        let about = |row: &CellRow<'_>| {
            let about = row.case().map(|case| bpfcost_text::line(&case.about));
            about.unwrap_or_default()
        };
        let is_floor = |row: &CellRow<'_>| row.case().is_some_and(|case| case.role == Role::Floor);
        let floors = group.rows.iter().any(is_floor);
        let mut columns =
            vec![Head::words("insn/op").cells(|row: &CellRow<'_>| Cell::words(&row.name))];
        for (place, record) in self.kernels.iter().enumerate() {
            // The matrix has the newest first.
            let at = self.kernels.len() - 1 - place;
            let cost = move |row: &CellRow<'_>| match row.cells[at].text.range.as_str() {
                "" => Cell::words(row.cells[at].marked()),
                range => Cell::words(range),
            };
            let change = move |row: &CellRow<'_>| {
                let change = row
                    .case()
                    .and_then(|case| changes.get(&(place, case.name.clone())));
                Cell::words(change.cloned().unwrap_or_default())
            };
            columns.extend([
                Head::number(target::label(record)).cells(cost),
                Head::words("note")
                    .joined()
                    .cells(move |row: &CellRow<'_>| Cell::words(&row.cells[at].text.note)),
                Head::words("change").joined().cells(change),
            ]);
        }
        let last = if floors { "event" } else { "floor" };
        columns.push(Head::words(last).cells(|row: &CellRow<'_>| {
            Cell::words(match row.floor() {
                floor if !floors && !floor.is_empty() => floor,
                _ => about(row),
            })
        }));
        let alike = |pair: &[CellRow<'_>]| about(&pair[0]) == about(&pair[1]);
        Table {
            title: match group.rows.first() {
                Some(row) if !floors && group.rows.windows(2).all(alike) => {
                    format!("{}: {}", group.name, about(row))
                }
                _ => group.name.clone(),
            },
            ..Table::new(columns, &group.rows)
        }
    }
}

/// Returns the cases that became slower or faster from each kernel to the next, with the relative change.
fn changes(kernels: &[&Record]) -> KernelChanges {
    let mut changes = KernelChanges::new();
    for (before, pair) in kernels.windows(2).enumerate() {
        let Some(matrix) = Matrix::new(pair) else {
            continue;
        };
        for row in matrix.table.rows() {
            let difference = row.cells.get(1).and_then(|cell| cell.difference);
            let differs = difference
                .filter(|one| matches!(one.verdict, VerdictRecord::Slower | VerdictRecord::Faster));
            if let Some((difference, case)) = differs.zip(row.case()) {
                let (relative, _) = matrix::relative(&difference);
                changes.insert((before + 1, case.name.clone()), format!("({relative})"));
            }
        }
    }
    changes
}
