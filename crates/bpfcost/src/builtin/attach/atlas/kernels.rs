//! A table for each body: what each way costs on every kernel, and how that changed from the one before.

use std::collections::HashMap;

use super::Atlas;
use crate::{
    experiment::Role,
    record::{CaseRecord, Record, Verdict},
    report::{
        block::{Block, Cell, Head},
        matrix::{Group, Matrix},
        target, text,
    },
};

/// How a case changed on a kernel, by the kernel's place and the case's name.
type Changes = HashMap<(usize, String), String>;

impl Atlas<'_> {
    /// The tables; none where there is one kernel.
    pub(super) fn by_kernel(&self) -> Vec<Block> {
        // The newest first, for rows are sorted by the first target.
        let newest: Vec<&Record> = self.kernels.iter().rev().copied().collect();
        let Some(matrix) = Matrix::new(&newest) else {
            return Vec::new();
        };
        let changes = changes(&self.kernels);
        let groups = matrix.groups.iter();
        let mut blocks: Vec<Block> = groups
            .map(|group| self.block(group, &matrix, &changes))
            .collect();
        if let Some(last) = blocks.last_mut() {
            last.captions = matrix.notes(true);
            last.captions.push(format!(
                "In brackets how a cost changed from the kernel before; nothing where it is the same, or where \
                 the ranges over loads meet. Sorted by the cost on {}.",
                target::label(newest[0])
            ));
        }
        blocks
    }

    fn block(&self, group: &Group, matrix: &Matrix<'_>, changes: &Changes) -> Block {
        let first = |place: usize| -> Option<&CaseRecord> {
            let mut cells = matrix.across.rows[place].cells.iter();
            cells.find_map(|cell| cell.case)
        };
        let cases: Vec<Option<&CaseRecord>> =
            group.rows.iter().map(|row| first(row.index)).collect();
        let about = |case: &Option<&CaseRecord>| {
            case.map_or_else(String::new, |case| text::line(&case.about))
        };
        let abouts: Vec<String> = cases.iter().map(about).collect();
        let alike = abouts.windows(2).all(|pair| pair[0] == pair[1]);
        let is_floor = cases.iter().flatten().any(|case| case.role == Role::Floor);
        let mut head = vec![Head::words("insn/op")];
        for record in &self.kernels {
            head.push(Head::number(target::label(record)));
            head.push(Head::words("change").joined());
        }
        head.push(Head::words(if is_floor { "event" } else { "floor" }));
        let mut rows = Vec::new();
        for ((row, case), about) in group.rows.iter().zip(&cases).zip(&abouts) {
            let mut cells = vec![Cell::words(row.name.clone())];
            // The matrix has the newest first.
            for (place, cell) in row.cells.iter().rev().enumerate() {
                let name = matrix.across.rows[row.index].name.to_owned();
                cells.push(Cell::words(match cell.text.range.as_str() {
                    "" => cell.marked(),
                    range => range.to_owned(),
                }));
                cells.push(Cell::words(
                    changes.get(&(place, name)).cloned().unwrap_or_default(),
                ));
            }
            cells.push(Cell::words(
                match case.and_then(|case| case.floor.as_deref()) {
                    Some(floor) if !is_floor => text::line(floor),
                    _ => about.clone(),
                },
            ));
            rows.push(cells);
        }
        Block {
            title: match abouts.first() {
                Some(about) if alike && !is_floor => format!("{}: {about}", group.name),
                _ => group.name.clone(),
            },
            head,
            rows,
            ..Block::default()
        }
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
                changes.insert((before + 1, name), format!("({})", found.relative));
            }
        }
    }
    changes
}
