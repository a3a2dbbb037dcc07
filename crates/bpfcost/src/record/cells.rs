//! The cases of a record as rows and columns, if two factors span a table.

use super::{CaseRecord, Record};
use crate::experiment::{Grid, Role};

/// The cases of a grid.
#[derive(Debug)]
pub struct Cells<'a> {
    /// The factors.
    pub grid: &'a Grid,
    /// Values of the first factor, in the order of the cases.
    pub rows: Vec<&'a str>,
    /// Values of the second.
    pub columns: Vec<&'a str>,
    cells: Vec<(CellKey<'a>, &'a CaseRecord)>,
}

/// A row and a column.
type CellKey<'a> = (&'a str, &'a str);

impl Grid {
    /// Where a case stands. Floors stand nowhere, nor do cases in which a further factor is not as usual:
    /// those are not named by their row and column alone.
    pub fn place<'a>(&self, case: &'a CaseRecord) -> Option<(&'a str, &'a str)> {
        let row = case.factors.get(&self.rows)?.as_str();
        let column = case.factors.get(&self.columns)?.as_str();
        let plain = case.name.strip_prefix(row)?.strip_prefix('/')? == column;
        (plain && case.role == Role::Case).then_some((row, column))
    }

    /// What a case says beside its cost; empty where it says nothing.
    pub fn note(&self, case: &CaseRecord) -> String {
        let names = case.secondary.keys();
        let notes = self.note.as_ref().map(|note| {
            let notes = names.filter_map(|name| name.strip_prefix(note.prefix.as_str()));
            notes.collect::<Vec<_>>().join("/")
        });
        notes.unwrap_or_default()
    }
}

impl Record {
    /// The cases as rows and columns; `None` where nothing spans a table.
    pub fn cells(&self) -> Option<Cells<'_>> {
        let grid = self.layout.grid()?;
        let mut cells = Cells {
            grid,
            rows: Vec::new(),
            columns: Vec::new(),
            cells: Vec::new(),
        };
        for case in &self.cases {
            let Some(place) = grid.place(case) else {
                continue;
            };
            if cells.at(place).is_some() {
                continue;
            }
            if !cells.rows.contains(&place.0) {
                cells.rows.push(place.0);
            }
            if !cells.columns.contains(&place.1) {
                cells.columns.push(place.1);
            }
            cells.cells.push((place, case));
        }
        (!cells.cells.is_empty()).then_some(cells)
    }
}

impl<'a> Cells<'a> {
    /// The case at a place; `None` where it was no part of the run.
    pub fn at(&self, place: CellKey<'_>) -> Option<&'a CaseRecord> {
        let cell = self.cells.iter().find(|cell| cell.0 == place)?;
        Some(cell.1)
    }
}
