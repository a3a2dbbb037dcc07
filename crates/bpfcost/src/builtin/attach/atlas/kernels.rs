//! A table per body: the cost of each way to attach on every kernel, and the change from the kernel before.

use std::collections::HashMap;

use super::Atlas;
use bpfcost_model::Role;
use bpfcost_record::{Record, VerdictRecord};
use bpfcost_report::{
    matrix::{Matrix, MatrixGroup, MatrixRow},
    table::{Cell, Head, Table},
    target,
    view::grid::note_caption,
};

/// How a case changed on a kernel, by the kernel's place and the case's name.
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
        let groups = matrix.groups.iter();
        let mut tables: Vec<Table> = groups
            .map(|group| self.table(group, &matrix, &changes))
            .collect();
        if let Some(last) = tables.last_mut() {
            last.captions = matrix.notes(true);
            let noted = |row: &MatrixRow| row.cells.iter().any(|cell| !cell.text.note.is_empty());
            let grid = matrix.grid.as_ref().filter(|_| matrix.rows().any(noted));
            last.captions.extend(grid.map(note_caption));
            last.captions.push(format!(
                "In brackets: the change from the previous kernel; empty where it is the same, or where the ranges \
                 over loads overlap. Sorted by the cost on {}.",
                target::label(newest[0])
            ));
        }
        tables
    }

    fn table(&self, group: &MatrixGroup, matrix: &Matrix<'_>, changes: &KernelChanges) -> Table {
        let cross_target = |row: &MatrixRow| &matrix.cross_target.rows[row.index];
        let case = |row: &MatrixRow| {
            let mut cells = matrix.cross_target.rows[row.index].cells.iter();
            cells.find_map(|cell| cell.case.as_deref())
        };
        let about = |row: &MatrixRow| {
            case(row).map_or_else(String::new, |case| bpfcost_text::line(&case.about))
        };
        let is_floor = |row: &MatrixRow| cross_target(row).role == Role::Floor;
        let floors = group.rows.iter().any(is_floor);
        let mut columns = vec![Head::words("insn/op").of(|row: &MatrixRow| Cell::words(&row.name))];
        for (place, record) in self.kernels.iter().enumerate() {
            // The matrix has the newest first.
            let at = self.kernels.len() - 1 - place;
            let cost = move |row: &MatrixRow| match row.cells[at].text.range.as_str() {
                "" => Cell::words(row.cells[at].marked()),
                range => Cell::words(range),
            };
            let change = move |row: &MatrixRow| {
                let change = changes.get(&(place, cross_target(row).name.to_owned()));
                Cell::words(change.cloned().unwrap_or_default())
            };
            columns.extend([
                Head::number(target::label(record)).of(cost),
                Head::words("note")
                    .joined()
                    .of(move |row: &MatrixRow| Cell::words(&row.cells[at].text.note)),
                Head::words("change").joined().of(change),
            ]);
        }
        let last = if floors { "event" } else { "floor" };
        columns.push(Head::words(last).of(|row: &MatrixRow| {
            let floor = case(row).and_then(|case| case.floor.as_deref());
            Cell::words(
                floor
                    .filter(|_| !floors)
                    .map_or_else(|| about(row), bpfcost_text::line),
            )
        }));
        let alike = |pair: &[MatrixRow]| about(&pair[0]) == about(&pair[1]);
        Table {
            title: match group.rows.first() {
                Some(row) if !floors && group.rows.windows(2).all(alike) => {
                    format!("{}: {}", group.name, about(row))
                }
                _ => group.name.clone(),
            },
            ..Table::of(columns, &group.rows)
        }
    }
}

/// What changed from each kernel to the next.
fn changes(kernels: &[&Record]) -> KernelChanges {
    let mut changes = KernelChanges::new();
    for (before, pair) in kernels.windows(2).enumerate() {
        let Some(matrix) = Matrix::new(pair) else {
            continue;
        };
        for row in matrix.rows() {
            let difference = row.cells.get(1).and_then(|cell| cell.difference.as_ref());
            let differs = difference.filter(|text| {
                matches!(
                    text.difference.verdict,
                    VerdictRecord::Slower | VerdictRecord::Faster
                )
            });
            if let Some(text) = differs {
                let name = matrix.cross_target.rows[row.index].name.to_owned();
                changes.insert((before + 1, name), format!("({})", text.relative));
            }
        }
    }
    changes
}
