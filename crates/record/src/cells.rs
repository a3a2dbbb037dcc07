//! The cases of a record as rows and columns, if two factors span a table.

use crate::{CaseRecord, Record};
use bpfcost_model::{Grid, Role};

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

impl CaseRecord {
    /// Row and column of the case in a table. Floors have none, nor do cases in which a further factor is not as usual:
    /// those are not named by their row and column alone.
    pub fn cell(&self, grid: &Grid) -> Option<(&str, &str)> {
        let row = self.factors.get(&grid.rows)?.as_str();
        let column = self.factors.get(&grid.columns)?.as_str();
        let plain = self.name.strip_prefix(row)?.strip_prefix('/')? == column;
        (plain && self.role == Role::Case).then_some((row, column))
    }

    /// The note beside the cost in a table; empty if there is none.
    pub fn note(&self, grid: &Grid) -> String {
        let names = self.secondary.keys();
        let notes = grid.note.as_ref().map(|note| {
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
            let Some(place) = case.cell(grid) else {
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
